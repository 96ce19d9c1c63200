package credentials

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/internal/pods"
)

// static is a pod without a service account.
var static = &v1.Pod{}

// apiPod is a pod of an API server.
func apiPod(uid, account string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{ServiceAccountName: account}}
	p.Namespace, p.Name, p.UID = "ns", "pod-"+uid, types.UID(uid)
	p.Annotations = map[string]string{pods.AnnotationSource: pods.SourceAPI}
	return p
}

// cluster has service accounts.
type cluster struct {
	mu       sync.Mutex
	accounts map[string]*v1.ServiceAccount
	issued   map[types.UID]int // how many tokens each pod had
	renew    bool
	err      error
}

func newCluster() *cluster {
	c := &cluster{accounts: map[string]*v1.ServiceAccount{}, issued: map[types.UID]int{}}
	for _, name := range []string{"one", "two"} {
		c.accounts[name] = &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
			Annotations: map[string]string{"example.com/role": "reader", "private": "x"},
		}}
	}
	return c
}

func (c *cluster) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if account := c.accounts[name]; account != nil && namespace == "ns" {
		return account.DeepCopy(), nil
	}
	return nil, errors.New("not found")
}

func (c *cluster) PullToken(_ context.Context, pod *v1.Pod, audience string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.issued[pod.UID] == 0 || c.renew {
		c.issued[pod.UID]++
	}
	return fmt.Sprintf("token %d of %s for %s", c.issued[pod.UID], pod.UID, audience), c.err
}

// accountPlugin is a plugin that wants tokens. It answers with the request as the user's name.
func accountPlugin(attributes kubeletconfigv1.ServiceAccountTokenAttributes, password func(q query) string) *plugin {
	attributes.ServiceAccountTokenAudience = "registry"
	config := kubeletconfigv1.CredentialProvider{
		Name: "f", MatchImages: []string{"r.io"}, DefaultCacheDuration: &metav1.Duration{Duration: time.Hour},
		TokenAttributes: &attributes,
	}
	n := 0
	return newPlugin(config, func(_ context.Context, q query) (*credentialproviderv1.CredentialProviderResponse, error) {
		n++
		given := make([]string, 0, len(q.annotations))
		for _, key := range slices.Sorted(maps.Keys(q.annotations)) {
			given = append(given, key+"="+q.annotations[key])
		}
		return &credentialproviderv1.CredentialProviderResponse{
			CacheKeyType: credentialproviderv1.RegistryPluginCacheKeyType,
			Auth: map[string]credentialproviderv1.AuthConfig{"r.io": {
				Username: fmt.Sprintf("%d: %q %s", n, q.token, strings.Join(given, " ")), Password: password(q),
			}},
		}, nil
	})
}

func other(query) string    { return "other" }
func echoed(q query) string { return q.token }

const (
	perToken   = kubeletconfigv1.TokenServiceAccountTokenCacheType
	perAccount = kubeletconfigv1.ServiceAccountServiceAccountTokenCacheType
)

func TestPluginsGetTokensOfAccounts(t *testing.T) {
	type attributes = kubeletconfigv1.ServiceAccountTokenAttributes
	for name, tc := range map[string]struct {
		attributes attributes
		password   func(query) string
		change     func(*cluster)
		pods       []*v1.Pod
		want       []string
	}{
		"per account": {
			attributes: attributes{CacheType: perAccount, RequireServiceAccount: ptr.To(true)},
			pods:       []*v1.Pod{apiPod("a", "one"), apiPod("b", "one"), apiPod("c", "two"), apiPod("a", "one")},
			want: []string{
				`1: "token 1 of a for registry" `, `1: "token 1 of a for registry" `,
				`2: "token 1 of c for registry" `, `1: "token 1 of a for registry" `,
			},
		},
		"per token": {
			attributes: attributes{CacheType: perToken, RequireServiceAccount: ptr.To(true)}, password: echoed,
			pods: []*v1.Pod{apiPod("a", "one"), apiPod("b", "one"), apiPod("a", "one")},
			want: []string{
				`1: "token 1 of a for registry" `, `2: "token 1 of b for registry" `, `1: "token 1 of a for registry" `,
			},
		},
		"a new token": {
			attributes: attributes{CacheType: perToken, RequireServiceAccount: ptr.To(true)},
			change:     func(c *cluster) { c.renew = true },
			pods:       []*v1.Pod{apiPod("a", "one"), apiPod("a", "one")},
			want:       []string{`1: "token 1 of a for registry" `, `2: "token 2 of a for registry" `},
		},
		"annotations": {
			attributes: attributes{
				CacheType: perAccount, RequireServiceAccount: ptr.To(true),
				RequiredServiceAccountAnnotationKeys: []string{"example.com/role"},
				OptionalServiceAccountAnnotationKeys: []string{"private", "none"},
			},
			pods: []*v1.Pod{apiPod("a", "one")},
			want: []string{`1: "token 1 of a for registry" example.com/role=reader private=x`},
		},
		"an annotation is missing": {
			attributes: attributes{
				CacheType: perAccount, RequireServiceAccount: ptr.To(true),
				RequiredServiceAccountAnnotationKeys: []string{"none"},
			},
			pods: []*v1.Pod{apiPod("a", "one")}, want: []string{"-"},
		},
		"pods without account": {
			attributes: attributes{CacheType: perAccount, RequireServiceAccount: ptr.To(false)},
			pods:       []*v1.Pod{static, static, apiPod("a", "one")},
			want:       []string{`1: "" `, `1: "" `, `2: "token 1 of a for registry" `},
		},
		"an account is required": {
			attributes: attributes{CacheType: perAccount, RequireServiceAccount: ptr.To(true)},
			pods:       []*v1.Pod{static}, want: []string{"-"},
		},
		"no such account": {
			attributes: attributes{CacheType: perAccount, RequireServiceAccount: ptr.To(true)},
			pods:       []*v1.Pod{apiPod("a", "none")},
			want:       []string{"credential provider f: service account ns/none: not found"},
		},
		"no token": {
			attributes: attributes{CacheType: perAccount, RequireServiceAccount: ptr.To(true)},
			change:     func(c *cluster) { c.err = errors.New("forbidden") },
			pods:       []*v1.Pod{apiPod("a", "one")},
			want:       []string{"credential provider f: token of service account ns/one: forbidden"},
		},
		"the token comes back": {
			attributes: attributes{CacheType: perAccount, RequireServiceAccount: ptr.To(true)}, password: echoed,
			pods: []*v1.Pod{apiPod("a", "one")}, want: []string{"credential provider f: " + errEchoed.Error()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			if tc.change != nil {
				tc.change(c)
			}
			if tc.password == nil {
				tc.password = other
			}
			p := &Plugins{
				list: []*plugin{accountPlugin(tc.attributes, tc.password)}, accounts: c, log: quietLog(),
			}
			if !p.PerAccount("r.io/a") || p.PerAccount("else.io/a") {
				t.Error("it is not known for which images the account matters")
			}
			for i, pod := range tc.pods {
				if got := answered(p.Lookup(t.Context(), pod, "r.io/a")); got != tc.want[i] {
					t.Errorf("pod %d: got %s, want %s", i, got, tc.want[i])
				}
			}
		})
	}
}

// answered is the user's name of an answer, or the error.
func answered(list []Credential, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case len(list) == 0:
		return "-"
	}
	return list[0].Username.Reveal()
}

// The credentials that a plugin gave for a service account are that account's.
func TestAccountIsTheSource(t *testing.T) {
	n := Node{Files: NewFiles(t.TempDir(), "", quietLog()), Plugins: &Plugins{
		list: []*plugin{accountPlugin(kubeletconfigv1.ServiceAccountTokenAttributes{
			CacheType: perAccount, RequireServiceAccount: ptr.To(false),
		}, other)},
		accounts: newCluster(), log: quietLog(),
	}}
	want := Source{UID: "uid-one", Namespace: "ns", Name: "one", Account: true}
	for _, tc := range []struct {
		pod  *v1.Pod
		want Source
	}{
		{apiPod("a", "one"), want}, {static, Source{}},
	} {
		list, err := n.Lookup(t.Context(), tc.pod, "r.io/a")
		if err != nil || len(list) != 1 || list[0].Source != tc.want {
			t.Errorf("got %+v, %v", list, err)
		}
		if got := n.Account(t.Context(), tc.pod, "r.io/a"); got != tc.want {
			t.Errorf("the account is %+v, want %+v", got, tc.want)
		}
	}
	if got := n.Account(t.Context(), apiPod("a", "none"), "r.io/a"); got != (Source{}) {
		t.Errorf("an account that does not exist is %+v", got)
	}
	if got := n.Account(t.Context(), apiPod("a", "one"), "else.io/a"); got != (Source{}) {
		t.Errorf("for a registry without a plugin the account is %+v", got)
	}
	n.Plugins.list[0].config.TokenAttributes.RequiredServiceAccountAnnotationKeys = []string{"gone"}
	if got := n.Account(t.Context(), apiPod("a", "one"), "r.io/a"); got != (Source{}) {
		t.Errorf("an account that the plugin is not for any more is %+v", got)
	}
}

func TestTokenAttributesAreChecked(t *testing.T) {
	const good = "serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true"
	for name, tc := range map[string]struct {
		text string
		want string // part of the error; empty for none
	}{
		"good": {good, ""},
		"annotations": {
			good + ", requiredServiceAccountAnnotationKeys: [A.example/b], optionalServiceAccountAnnotationKeys: [c]", "",
		},
		"no audience": {"cacheType: Token, requireServiceAccount: true", ".serviceAccountTokenAudience: is required"},
		"no cache":    {"serviceAccountTokenAudience: a, requireServiceAccount: true", `.cacheType: "" is neither`},
		"no choice":   {"serviceAccountTokenAudience: a, cacheType: Token", ".requireServiceAccount: is required"},
		"required of none": {
			"serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: false, " +
				"requiredServiceAccountAnnotationKeys: [a]",
			".requiredServiceAccountAnnotationKeys: need requireServiceAccount: true",
		},
		"no key": {
			good + `, optionalServiceAccountAnnotationKeys: ["a b"]`,
			`.optionalServiceAccountAnnotationKeys[0]: "a b" is no annotation's key`,
		},
		"twice": {
			good + ", requiredServiceAccountAnnotationKeys: [a], optionalServiceAccountAnnotationKeys: [a]",
			`.optionalServiceAccountAnnotationKeys[0]: "a" is there twice`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := strings.Replace(onePlugin("good"), "args:", "tokenAttributes: {"+tc.text+"}\n  args:", 1)
			_, err := OpenPlugins(writePluginConfig(t, config), pluginDir(t), nil, quietLog())
			want := "providers[0].tokenAttributes" + tc.want
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("error is %v, want %q in it", err, want)
			}
		})
	}
	old := strings.Replace(onePlugin("good"), "args:", "tokenAttributes: {"+good+"}\n  args:", 1)
	old = strings.Replace(old, "credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1beta1", 1)
	if _, err := OpenPlugins(writePluginConfig(t, old), pluginDir(t), nil, quietLog()); err == nil ||
		!strings.Contains(err.Error(), "tokenAttributes: need apiVersion credentialprovider.kubelet.k8s.io/v1") {
		t.Errorf("the error of an old protocol is %v", err)
	}
}

// What a plugin writes to standard error is quoted without private texts, also where it is cut.
func TestComplaints(t *testing.T) {
	secret := strings.Repeat("0123456789abcdef", 60)
	for before := range 2 * maxErrorText {
		c := &complaint{}
		c.hide(secret)
		c.hide("short")
		text := strings.Repeat("x", before) + secret + " and short " + secret + secret
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := c.text(); len(got) > maxErrorText || strings.Contains(got, "0123") || strings.Contains(got, "short") {
			t.Fatalf("after %d bytes it says %s", before, got)
		}
	}
}
