package apiserver

import (
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// anonymousPaths are what a request without credentials may ask for: health and the version. All
// others get 401.
var anonymousPaths = []apiserverapi.AnonymousAuthCondition{
	{Path: "/healthz"}, {Path: "/livez"}, {Path: "/readyz"}, {Path: "/version"},
}

// restrictsAnonymous says whether no flag says what requests without credentials may do.
func (o *Options) restrictsAnonymous() bool {
	a := o.Server.Authentication
	return a.AuthenticationConfigFile == "" && !a.Anonymous.FlagsSet
}

// allowAnonymous has the server answer requests without credentials for those paths. Upstream knows
// paths only in an authentication configuration, which it refuses beside the flags of OIDC.
func allowAnonymous(config *app.Config) {
	a := &config.Aggregator.GenericConfig.Authentication
	a.Authenticator = union.NewFailOnError(a.Authenticator, anonymous.NewAuthenticator(anonymousPaths))
}
