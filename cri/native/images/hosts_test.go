package images

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestLogin(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("ann:pass:word"))
	for name, c := range map[string]struct {
		registry string
		auth     *runtimeapi.AuthConfig
		want     login
	}{
		"none": {"r.example", nil, login{host: "r.example"}},
		"password": {
			"r.example:5000", &runtimeapi.AuthConfig{Username: "ann", Password: "word"},
			login{host: "r.example:5000", username: "ann", secret: "word"},
		},
		"auth": {
			"r.example", &runtimeapi.AuthConfig{Auth: encoded},
			login{host: "r.example", username: "ann", secret: "pass:word"},
		},
		"identity token": {
			"r.example", &runtimeapi.AuthConfig{IdentityToken: "t", Username: "ann"},
			login{host: "r.example", secret: "t"},
		},
		"registry token": {
			"r.example", &runtimeapi.AuthConfig{RegistryToken: "t"}, login{host: "r.example", bearer: "t"},
		},
		"docker hub": {
			"docker.io", &runtimeapi.AuthConfig{Username: "ann", ServerAddress: "https://index.docker.io/v1/"},
			login{host: "docker.io", username: "ann"},
		},
		"another server": {
			"r.example", &runtimeapi.AuthConfig{Username: "ann", ServerAddress: "Other.example/team"},
			login{host: "other.example", username: "ann"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := loginOf(c.registry, c.auth)
			if err != nil || got != c.want {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

// A login that cannot be read is an error that does not show the login.
func TestBadLogin(t *testing.T) {
	for _, auth := range []string{"secret!", base64.StdEncoding.EncodeToString([]byte("secret"))} {
		_, err := loginOf("r.example", &runtimeapi.AuthConfig{Auth: auth})
		if !errdefs.IsInvalidArgument(err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
	}
}

func TestCredentialsGoToTheRegistryAlone(t *testing.T) {
	who, err := loginOf("docker.io", &runtimeapi.AuthConfig{Username: "ann", Password: "word"})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"registry-1.docker.io": "ann", "mirror.example": "", "docker.io.example": "", "mirror.example:443": "",
	} {
		if got, _, err := who.credentials(host); err != nil || got != want {
			t.Errorf("%s gets %q, %v, want %q", host, got, err, want)
		}
	}
}
