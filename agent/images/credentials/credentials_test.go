package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(pluginMode); mode != "" {
		os.Exit(actAsPlugin(mode))
	}
	os.Exit(leaks.Run(m))
}

func TestSecretsDoNotShow(t *testing.T) {
	const password = "correct-horse"
	type hidden struct{ inner Credential }
	c := Credential{
		Username:      NewSecret(password),
		Password:      NewSecret(password),
		IdentityToken: NewSecret(password),
		Source:        Source{Name: "s"},
	}
	values := []any{
		c.Password, &c.Password, c, &c,
		[]Credential{c},
		map[string]Credential{"k": c},
		hidden{c},
		&hidden{c},
		Config{"r": c},
		entry{key: "r", credential: c},
		&Keyring{entries: []entry{{credential: c}}},
		answer{ring: &Keyring{entries: []entry{{credential: c}}}},
	}
	var text strings.Builder
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
			fmt.Fprintf(&text, verb+"\n", v)
		}
		fmt.Fprintln(&text, v, fmt.Errorf("wrapped: %w: %v", errors.New("x"), v))
		for _, h := range []slog.Handler{
			slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.Level(-100)}),
			slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.Level(-100)}),
		} {
			slog.New(h).Log(t.Context(), slog.Level(-100), "at the lowest level", "v", v)
		}
		for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
			if data, err := marshal(v); err == nil {
				text.Write(data)
			}
		}
	}
	for _, form := range []string{
		password, base64.StdEncoding.EncodeToString([]byte(password)), fmt.Sprintf("%x", password),
		fmt.Sprintf("%X", password),
	} {
		if strings.Contains(text.String(), form) {
			t.Errorf("%q is shown in:\n%s", form, text.String())
		}
	}
	if !strings.Contains(text.String(), redacted) || c.Password.Reveal() != password || (Secret{}).Reveal() != "" {
		t.Error("the secret is lost")
	}
}

func TestHashIsTheKubelets(t *testing.T) {
	// kubelet 1.36 records this value for this login.
	c := Credential{Username: NewSecret("user"), Password: NewSecret("password"), Source: Source{Name: "a"}}
	if got := c.Hash(); got != "a55436fc140d516560d072c5fe8700385ce9f41629abf65c1edcbcb39fac691d" {
		t.Errorf("hash is %s", got)
	}
	for _, other := range []Credential{
		{Username: NewSecret("user")},
		{Username: NewSecret("user"), Password: NewSecret("password"), Email: NewSecret("e")},
		{Username: NewSecret("user"), Password: NewSecret("password"), IdentityToken: NewSecret("e")},
	} {
		if other.Hash() == c.Hash() {
			t.Error("another login has the same hash")
		}
	}
}

func TestParse(t *testing.T) {
	auth := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, tc := range map[string]struct {
		json   string
		old    bool   // .dockercfg
		want   string // key=user:password, sorted
		errors string
	}{
		"fields": {json: `{"auths":{"r.io":{"username":"u","password":"p","email":"e"}}}`, want: "r.io=u:p"},
		"auth":   {json: `{"auths":{"r.io":{"auth":"` + auth("u:p:q") + `"}}}`, want: "r.io=u:p:q"},
		"auth counts": {
			json: `{"auths":{"r.io":{"username":"x","password":"y","auth":"` + auth("u:p") + `"}}}`, want: "r.io=u:p",
		},
		"auth not padded": {
			json: `{"auths":{"r.io":{"auth":"` + strings.TrimRight(auth("u:pp"), "=") + `"}}}`, want: "r.io=u:pp",
		},
		"auth ends NUL": {json: `{"auths":{"r.io":{"auth":"` + auth("u:p\x00") + `"}}}`, want: "r.io=u:p"},
		"more in it": {
			json: `{"auths":{"r.io":{"auth":"` + auth("u:p") + `"}},"credHelpers":{"x":"y"},"HttpHeaders":{"a":"b"}}`,
			want: "r.io=u:p",
		},
		"none":        {json: `{"auths":{}}`},
		"empty login": {json: `{"auths":{"r.io":{}}}`, want: "r.io=:"},
		"old":         {json: `{"r.io":{"auth":"` + auth("u:p") + `"}}`, old: true, want: "r.io=u:p"},
		"one is wrong": {
			json: `{"auths":{"a.io":{"auth":"%%%"},"b.io":{"auth":"` + auth("nocolon") +
				`"},"c.io":{"username":"u","password":"p"},"d.io":{"password":5},"e.io":7}}`,
			want: "c.io=u:p",
			errors: "the entry of \"a.io\": its auth is not base64\n" +
				"the entry of \"b.io\": its auth is not user:password in base64\n" +
				"the entry of \"d.io\": it has JSON of the wrong type at byte 13\n" +
				"the entry of \"e.io\": it has JSON of the wrong type at byte 1",
		},
		"no auths":    {json: `{"credsStore":"desktop"}`, errors: `it has no "auths"`},
		"not JSON":    {json: `hunter2`, errors: "it is not valid JSON, from byte 1 on"},
		"cut short":   {json: `{"auths":{"r.io":{"password":"hunter2`, errors: "it is not valid JSON, from byte 37 on"},
		"a list":      {json: `["hunter2"]`, errors: "it has JSON of the wrong type at byte 1"},
		"null":        {json: `null`, old: true, errors: "it is empty"},
		"empty":       {json: ``, errors: "it is not valid JSON, from byte 0 on"},
		"old is text": {json: `"hunter2"`, old: true, errors: "it has JSON of the wrong type at byte 9"},
	} {
		t.Run(name, func(t *testing.T) {
			parse := ParseConfigJSON
			if tc.old {
				parse = ParseDockercfg
			}
			config, err := parse([]byte(tc.json))
			var got []string
			for key, c := range config {
				got = append(got, key+"="+c.Username.Reveal()+":"+c.Password.Reveal())
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tc.want {
				t.Errorf("logins are %v, want %s", got, tc.want)
			}
			if text := fmt.Sprint(err); err == nil && tc.errors != "" || err != nil && text != tc.errors {
				t.Errorf("error is %q, want %q", text, tc.errors)
			}
		})
	}
}

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		key, repository string
		want            bool
	}{
		{"r.io", "r.io/a", true},
		{"r.io", "r.io/a/b/c", true},
		{"r.io/a", "r.io/a/b", true},
		{"r.io/a", "r.io/ab", true}, // a prefix, as in Kubernetes
		{"r.io/a/b", "r.io/a", false},
		{"r.io/b", "r.io/a/b", false},
		{"r.io", "x.r.io/a", false},
		{"*.r.io", "x.r.io/a", true},
		{"*.r.io", "r.io/a", false},
		{"*.io", "x.r.io/a", false},
		{"*.*.io", "x.r.io/a", true},
		{"app*.r.io", "app7.r.io/a", true},
		{"app*.r.io", "web.r.io/a", false},
		{"r.*", "r.io/a", true},
		{"r.?o", "r.io/a", true},
		{"r.io/*", "r.io/a", false}, // globs match hosts only
		{"r.io:5000", "r.io:5000/a", true},
		{"r.io:5000", "r.io/a", false},
		{"r.io", "r.io:5000/a", false},
		{"r.io:*", "r.io:5000/a", false},
		{"*:5000", "localhost:5000/a", true},
		{"127.0.0.1:5000/x", "127.0.0.1:5000/x/y", true},
		{"[::1]:5000", "[::1]:5000/x", true},
		{"[::1]:5000", "[::2]:5000/x", false},
		{"[", "[/x", false},
		{"", "r.io/a", false},
	} {
		if got := Match(tc.key, tc.repository); got != tc.want {
			t.Errorf("%q matches %q: %t, want %t", tc.key, tc.repository, got, tc.want)
		}
	}
}

func TestLookup(t *testing.T) {
	// The user name of each registry's login is the login's key as it was written.
	ring := func(keys ...string) *Keyring {
		k := &Keyring{}
		for i, key := range keys {
			k.Add(Source{Name: fmt.Sprint(i)}, Config{key: {Username: NewSecret(key)}})
		}
		return k
	}
	for name, tc := range map[string]struct {
		ring       *Keyring
		repository string
		want       []string
	}{
		"nothing":    {ring: &Keyring{}, repository: "r.io/a"},
		"no keyring": {repository: "r.io/a"},
		"longer first": {
			ring("r.io", "r.io/a/b", "r.io/a", "s.io"), "r.io/a/b/c", []string{"r.io/a/b", "r.io/a", "r.io"},
		},
		"names before globs": {ring("*.r.io", "x.r.io", "x.*.io"), "x.r.io/a", []string{"x.r.io", "x.*.io", "*.r.io"}},
		"same key in order": {
			ring("https://r.io/v1/", "http://r.io", "r.io/v2/"), "r.io/a",
			[]string{"https://r.io/v1/", "http://r.io", "r.io/v2/"},
		},
		"version with a path": {ring("https://r.io/v2/a"), "r.io/b", nil},
		"version and path":    {ring("https://r.io/v2/a"), "r.io/a", []string{"https://r.io/v2/a"}},
		"default registry": {
			ring("https://index.docker.io/v1/"), "docker.io/library/busybox", []string{"https://index.docker.io/v1/"},
		},
		"default, by name": {
			ring("docker.io", "https://index.docker.io/v1/"), "docker.io/library/busybox", []string{"docker.io"},
		},
		"default, short":      {ring("index.docker.io"), "busybox", []string{"index.docker.io"}},
		"default, no other's": {ring("index.docker.io"), "r.io/a", nil},
		"no host":             {ring("index.docker.io"), "/a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range tc.ring.Lookup(tc.repository) {
				got = append(got, c.Username.Reveal())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestFromSecrets(t *testing.T) {
	secret := func(name string, kind v1.SecretType, data map[string]string) *v1.Secret {
		s := &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid"},
			Type:       kind,
			Data:       map[string][]byte{},
		}
		for k, v := range data {
			s.Data[k] = []byte(v)
		}
		return s
	}
	const json = `{"auths":{"r.io":{"username":"u","password":"hunter2"}}}`
	k, err := FromSecrets([]*v1.Secret{
		secret("opaque", v1.SecretTypeOpaque, map[string]string{v1.DockerConfigJsonKey: json}),
		secret("empty", v1.SecretTypeDockerConfigJson, nil),
		secret("crossed", v1.SecretTypeDockercfg, map[string]string{v1.DockerConfigJsonKey: json}),
		secret("bad", v1.SecretTypeDockerConfigJson,
			map[string]string{v1.DockerConfigJsonKey: `{"auths":{"r.io":{"auth":"hunter2"},"s.io":{}}}`}),
		secret("good", v1.SecretTypeDockerConfigJson, map[string]string{v1.DockerConfigJsonKey: json}),
		secret("old", v1.SecretTypeDockercfg,
			map[string]string{v1.DockerConfigKey: `{"r.io":{"username":"u2","password":"hunter2"}}`}),
	})
	var got []string
	for _, c := range k.Lookup("r.io/a") {
		got = append(got, c.Source.String()+" "+c.Source.UID+" "+c.Username.Reveal())
	}
	if want := []string{"ns/good uid u", "ns/old uid u2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	const want = `Secret ns/opaque: its type is "Opaque": a pull secret's is kubernetes.io/dockerconfigjson ` +
		`or kubernetes.io/dockercfg
Secret ns/empty: it has no .dockerconfigjson
Secret ns/crossed: it has no .dockercfg
Secret ns/bad: .dockerconfigjson: the entry of "r.io": its auth is not user:password in base64`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v", err)
	}
	if (Source{}).String() != "node" || !(Source{}).Node() || (Source{Name: "x"}).Node() {
		t.Error("a source says it is another")
	}
}

func TestScrub(t *testing.T) {
	list := []Credential{
		{Username: NewSecret("carol"), Password: NewSecret("hunter2")},
		{Username: NewSecret("team"), Password: NewSecret("hunter2-longer"), IdentityToken: NewSecret("tok-en")},
		{Username: NewSecret(""), Password: NewSecret("a")}, // too short to be removed
	}
	basic := base64.StdEncoding.EncodeToString([]byte("carol:hunter2"))
	message := `pull r.io/team/app: 401: you sent "Basic ` + basic +
		`" as carol with hunter2, team:hunter2-longer and tok-en`
	const want = `pull r.io/team/app: 401: you sent "Basic [redacted]" as [redacted] with [redacted], [redacted] and ` +
		`[redacted]`
	if got := Scrub(message, "r.io/team/app", list); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"auths":{"r.io":{"auth":"dTpw"}}}`), "r.io/a")
	f.Add([]byte(`{"https://[::1]:5/v1/":{"username":"u"}}`), "[::1]:5/a")
	f.Fuzz(func(_ *testing.T, data []byte, repository string) {
		for _, parse := range []func([]byte) (Config, error){ParseConfigJSON, ParseDockercfg} {
			config, _ := parse(data)
			k := &Keyring{}
			k.Add(Source{}, config)
			for _, c := range k.Lookup(repository) {
				_ = c.Hash()
				_ = Scrub(string(data), repository, []Credential{c})
			}
		}
	})
}
