package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/berthd/berth/internal/pods"
)

// Accounts has the service accounts of the pods of an API server, for plugins with tokenAttributes
// (KEP-4412).
type Accounts interface {
	// ServiceAccount asks the API server for a service account.
	ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	// PullToken returns a token of the pod's service account for an audience, bound to the pod. It
	// asks the API server if there is none, or if the last one is old.
	PullToken(ctx context.Context, pod *v1.Pod, audience string) (string, error)
}

// HasAccount reports whether a pod has a service account: one of an API server.
func HasAccount(pod *v1.Pod) bool { return pods.FromAPI(pod) && pod.Spec.ServiceAccountName != "" }

// query is what a plugin is asked.
type query struct {
	image string
	// token and annotations are the service account's. They are empty if the plugin has no
	// tokenAttributes, or if the pod has no account.
	token       string
	annotations map[string]string
	// scope identifies for whom the answer is valid; empty for every pod of the node.
	scope string
	// source is the service account with whose token the plugin answers; the zero value is the node.
	source Source
}

// queryFor returns what to ask a plugin for a pod's image. ok is false if the plugin is not for
// this pod: it requires a service account, or an annotation of the account.
func (p *plugin) queryFor(
	ctx context.Context, accounts Accounts, pod *v1.Pod, image string,
) (q query, ok bool, err error) {
	q.image = image
	attributes := p.config.TokenAttributes
	if attributes == nil {
		return q, true, nil
	}
	if !HasAccount(pod) {
		return q, !*attributes.RequireServiceAccount, nil
	}
	account, err := accounts.ServiceAccount(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return q, false, fmt.Errorf("service account %s/%s: %w", pod.Namespace, pod.Spec.ServiceAccountName, err)
	}
	if q.annotations, ok = p.annotations(account); !ok {
		return q, false, nil
	}
	if q.token, err = accounts.PullToken(ctx, pod, attributes.ServiceAccountTokenAudience); err != nil {
		return q, false, fmt.Errorf("token of service account %s/%s: %w", pod.Namespace, account.Name, err)
	}
	q.source = sourceOf(account)
	q.scope = scopeOf(attributes.CacheType, q, pod)
	return q, true, nil
}

func sourceOf(account *v1.ServiceAccount) Source {
	return Source{UID: string(account.UID), Namespace: account.Namespace, Name: account.Name, Account: true}
}

// annotations returns those of a service account's annotations that the plugin asks for. ok is
// false if the account lacks one that the plugin requires: the plugin is not for this account.
func (p *plugin) annotations(account *v1.ServiceAccount) (given map[string]string, ok bool) {
	given = map[string]string{}
	for _, key := range p.config.TokenAttributes.RequiredServiceAccountAnnotationKeys {
		value, there := account.Annotations[key]
		if !there {
			return nil, false
		}
		given[key] = value
	}
	for _, key := range p.config.TokenAttributes.OptionalServiceAccountAnnotationKeys {
		if value, there := account.Annotations[key]; there {
			given[key] = value
		}
	}
	return given, true
}

// Account returns a pod's service account if a plugin gives credentials for the account and the
// repository now. The zero value means that none does, or that the API server does not answer.
func (p *Plugins) Account(ctx context.Context, pod *v1.Pod, repository string) Source {
	if !HasAccount(pod) || !p.PerAccount(repository) {
		return Source{}
	}
	account, err := p.accounts.ServiceAccount(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return Source{}
	}
	for _, plugin := range p.list {
		if plugin.config.TokenAttributes == nil || !plugin.matches(repository) {
			continue
		}
		if _, ok := plugin.annotations(account); ok {
			return sourceOf(account)
		}
	}
	return Source{}
}

// scopeOf identifies the service account and its annotations. With the cache type Token, it also
// identifies the pod and the token.
func scopeOf(kind kubeletconfigv1.ServiceAccountTokenCacheType, q query, pod *v1.Pod) string {
	scope := struct {
		Account        Source
		Annotations    map[string]string
		Pod, TokenHash string
	}{Account: q.source, Annotations: q.annotations}
	if kind == kubeletconfigv1.TokenServiceAccountTokenCacheType {
		scope.Pod = string(pod.UID)
		scope.TokenHash = Credential{Password: NewSecret(q.token)}.Hash()
	}
	text, _ := json.Marshal(scope) // texts can always be marshaled
	return string(text)
}

// echoes reports whether an answer has the token itself as a password.
func (q query) echoes(response *credentialproviderv1.CredentialProviderResponse) bool {
	for _, auth := range response.Auth {
		if q.token != "" && auth.Password == q.token {
			return true
		}
	}
	return false
}

// checkAttributes returns what is wrong with a provider's tokenAttributes; each error is
// "FIELD: what".
func checkAttributes(p kubeletconfigv1.CredentialProvider) (errs []error) {
	a := p.TokenAttributes
	if a == nil {
		return nil
	}
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("tokenAttributes"+format, args...))
	}
	if p.APIVersion != credentialproviderv1.SchemeGroupVersion.String() {
		wrong(": need apiVersion %s", credentialproviderv1.SchemeGroupVersion)
	}
	if a.ServiceAccountTokenAudience == "" {
		wrong(".serviceAccountTokenAudience: is required")
	}
	if !slices.Contains([]kubeletconfigv1.ServiceAccountTokenCacheType{
		kubeletconfigv1.TokenServiceAccountTokenCacheType, kubeletconfigv1.ServiceAccountServiceAccountTokenCacheType,
	}, a.CacheType) {
		wrong(".cacheType: %q is neither Token nor ServiceAccount", a.CacheType)
	}
	switch {
	case a.RequireServiceAccount == nil:
		wrong(".requireServiceAccount: is required")
	case !*a.RequireServiceAccount && len(a.RequiredServiceAccountAnnotationKeys) > 0:
		wrong(".requiredServiceAccountAnnotationKeys: need requireServiceAccount: true")
	}
	seen := map[string]bool{}
	for _, list := range []struct {
		field string
		keys  []string
	}{
		{"requiredServiceAccountAnnotationKeys", a.RequiredServiceAccountAnnotationKeys},
		{"optionalServiceAccountAnnotationKeys", a.OptionalServiceAccountAnnotationKeys},
	} {
		for i, key := range list.keys {
			if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
				wrong(".%s[%d]: %q is no annotation's key: %s", list.field, i, key, strings.Join(problems, ", "))
			}
			if seen[key] {
				wrong(".%s[%d]: %q is there twice", list.field, i, key)
			}
			seen[key] = true
		}
	}
	return errs
}

// errEchoed is the error for an answer that would be cached for longer than its token is valid.
var errEchoed = errors.New("its answer has the service account's token as a password: " +
	"set tokenAttributes.cacheType to Token")

// requestOf returns the request for a plugin's program.
func requestOf(apiVersion string, q query) credentialproviderv1.CredentialProviderRequest {
	return credentialproviderv1.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{Kind: kindRequest, APIVersion: apiVersion}, Image: q.image,
		ServiceAccountToken: q.token, ServiceAccountAnnotations: q.annotations,
	}
}
