package images

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/agent/images/credentials"
	"github.com/berthd/berth/agent/images/records"
	"github.com/berthd/berth/internal/pods"
)

// private is an image that its registry gives only with a login.
const private = "r.io/team/app:1"

// node has the credentials of a test's pods: Secrets of namespace "ns", and the node's own.
type node struct {
	mu      sync.Mutex
	secrets map[string]*v1.Secret
	users   []string // of the node's credentials
	err     error
	state   string
	hold    chan struct{} // if not nil, lookups wait for it
	// account says that each service account has a credential with its name.
	account bool
}

func newNode() *node { return &node{secrets: map[string]*v1.Secret{}} }

// set stores a Secret with a login to r.io for the user. The password is "pw-" and the user's name.
func (n *node) set(secret, user string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.secrets[secret] = &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: secret}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{"r.io":{"username":"` + user +
			`","password":"pw-` + user + `"}}}`)},
	}
}

func (n *node) setNode(state string, users ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state, n.users = state, users
}

func (n *node) Secret(pod *v1.Pod, name string) (*v1.Secret, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := n.secrets[name]
	return s, ok && pod.Namespace == "ns"
}

func (n *node) Lookup(
	ctx context.Context, pod *v1.Pod, repository string,
) (list []credentials.Credential, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if hold := n.hold; hold != nil {
		n.mu.Unlock()
		select {
		case <-hold:
		case <-ctx.Done():
		}
		n.mu.Lock()
	}
	if !strings.HasPrefix(repository, "r.io/") {
		return nil, nil
	}
	if n.account && credentials.HasAccount(pod) {
		list = append(list, credentials.Credential{
			Username: credentials.NewSecret(pod.Spec.ServiceAccountName), Source: sourceOf(pod),
		})
	}
	for _, user := range n.users {
		list = append(list,
			credentials.Credential{
				Username: credentials.NewSecret(user), Password: credentials.NewSecret("pw-" + user),
			})
	}
	return list, n.err
}

// sourceOf is the service account of a pod.
func sourceOf(pod *v1.Pod) credentials.Source {
	name := pod.Spec.ServiceAccountName
	return credentials.Source{UID: "uid-" + name, Namespace: pod.Namespace, Name: name, Account: true}
}

func (n *node) PerAccount(string) bool { return n.account }

func (n *node) Account(_ context.Context, pod *v1.Pod, _ string) credentials.Source {
	if !credentials.HasAccount(pod) {
		return credentials.Source{}
	}
	return sourceOf(pod)
}

func (n *node) State() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

// guarded is a bench with a node, records, and a registry that gives private to alice and bob only.
type guarded struct {
	*bench
	*node
	root string
}

func startGuarded(t *testing.T, cfg Config) *guarded {
	t.Helper()
	g := &guarded{node: newNode(), root: t.TempDir()}
	policy, err := records.NewPolicy(kubeletconfigv1beta1.NeverVerifyPreloadedImages, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.bench = start(t, cfg, Deps{
		Node:    g.node,
		Secret:  g.Secret,
		Records: records.New(g.root, policy, slog.New(slog.DiscardHandler)),
	})
	g.runtime.deny = func(name, user string) error {
		if name == private && user != "alice" && user != "bob" {
			return errors.New("401 Unauthorized for " + user)
		}
		return nil
	}
	return g
}

// secrets gives the pod pull secrets.
func secrets(names ...string) func(*Request) {
	return func(r *Request) {
		r.Pod.Namespace = "ns"
		for _, name := range names {
			r.Pod.Spec.ImagePullSecrets = append(r.Pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
		}
	}
}

func (b *bench) wantUsers(want ...string) {
	b.Helper()
	b.runtime.mu.Lock()
	defer b.runtime.mu.Unlock()
	if !slices.Equal(b.runtime.users, want) {
		b.Errorf("pulled as %q, want %q", b.runtime.users, want)
	}
}

func TestAnImageIsForThoseWhoCanPullIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGuarded(t, Config{})
		g.set("a", "alice")
		g.set("b", "bob")
		g.set("same", "alice")
		g.set("eve", "eve")
		g.want("a", private, secrets("a"))
		wantReady(t, g.want("a", private, secrets("a")))
		g.takeEvents()

		// Another pod with the same Secret, or with the same login in another one, uses the image
		// that is there.
		wantReady(t, g.want("a2", private, secrets("a")))
		wantReady(t, g.want("a3", private, secrets("same")))
		wantReady(t, g.want("a", private, secrets("a"), attempt(1)))
		g.wantUsers("alice")
		g.wantEvents(
			`a/c Normal Pulled: Container image "r.io/team/app:1" already present on machine and can be accessed by `+
				`the pod`,
			`a2/c Normal Pulled: Container image "r.io/team/app:1" already present on machine and can be accessed by `+
				`the pod`,
			`a3/c Normal Pulled: Container image "r.io/team/app:1" already present on machine and can be accessed by `+
				`the pod`)

		// A pod with a login of its own asks the registry once.
		g.want("b", private, secrets("b"))
		wantReady(t, g.want("b", private, secrets("b")))
		wantReady(t, g.want("b2", private, secrets("b")))
		g.wantUsers("alice", "bob")

		// A pod without a login, or with one that the registry refuses, does not get the image,
		// whatever its policy is.
		g.want("n", private)
		wantWait(t, g.want("n", private), ReasonPull, "401 Unauthorized for -", failureShown)
		g.want("e", private, secrets("eve"))
		wantWait(t, g.want("e", private, secrets("eve")), ReasonPull, "401 Unauthorized for [redacted]", failureShown)
		wantWait(t, g.want("p", private, policy(v1.PullNever)), ReasonNeverPull,
			`Container image "r.io/team/app:1" is not present with pull policy of Never`, recheck)
		g.wantUsers("alice", "bob", "-", "eve")

		// After a restart the records say the same.
		g.end()
		g.run()
		g.forget("n")
		g.want("n", private)
		wantWait(t, g.want("n", private), ReasonPull, "401 Unauthorized for -", failureShown)
		wantReady(t, g.want("b3", private, secrets("b")))
	})
}

// account makes the pod one of an API server, with a service account.
func account(name string) func(*Request) {
	return func(r *Request) {
		r.Pod.Namespace, r.Pod.Spec.ServiceAccountName = "ns", name
		r.Pod.Annotations = map[string]string{pods.AnnotationSource: pods.SourceAPI}
	}
}

// Pods of one service account share a pull and its image; other pods ask the registry.
func TestAnImageIsForItsServiceAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGuarded(t, Config{})
		g.account = true
		var release func(error)
		g.runtime.pull, release = held()
		g.want("a", private, account("alice"))
		g.want("a2", private, account("alice"))
		g.want("b", private, account("bob"))
		g.want("e", private, account("eve"))
		g.want("n", private)
		g.wantUsers("alice")
		release(nil)
		g.wantWoken("a", "a2")
		release(nil)
		wantReady(t, g.want("a2", private, account("alice")))
		wantReady(t, g.want("a3", private, account("alice")))
		wantReady(t, g.want("b", private, account("bob")))
		wantWait(t, g.want("e", private, account("eve")), ReasonPull, "401 Unauthorized for [redacted]", failureShown)
		wantWait(t, g.want("n", private), ReasonPull, "401 Unauthorized for -", failureShown)
		g.wantUsers("alice", "bob", "eve", "-")
	})
}

func TestPreloadedImagesAreForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGuarded(t, Config{})
		g.runtime.put(private)
		wantReady(t, g.want("n", private))
		wantReady(t, g.want("n2", private, policy(v1.PullNever)))
		g.wantUsers()
	})
}

func TestOneImageIsPulledWithOneLoginAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGuarded(t, Config{})
		g.set("a", "alice")
		g.set("b", "bob")
		var release func(error)
		g.runtime.pull, release = held()
		wantWait(t, g.want("a", private, secrets("a")), ReasonCreating, `Pulling image "r.io/team/app:1"`, 0)
		wantWait(t, g.want("a2", private, secrets("a")), ReasonCreating, `Pulling image "r.io/team/app:1"`, 0)
		wantWait(t, g.want("b", private, secrets("b")), ReasonCreating,
			`Image "r.io/team/app:1" is queued for its pull`, 0)
		g.wantUsers("alice")
		if got := g.Progress(context.Background()); len(got) != 1 || got[0].State != Pulling || len(got[0].Pods) != 3 {
			t.Errorf("progress is %+v", got)
		}
		release(nil)
		g.wantUsers("alice", "bob")
		g.wantWoken("a", "a2")
		if res := g.want("b", private, secrets("b")); res.Ready {
			t.Error("bob has the image before the registry agreed")
		}
		release(nil)
		g.wantWoken("b")
		wantReady(t, g.want("b", private, secrets("b")))
		wantReady(t, g.want("a2", private, secrets("a")))
		g.wantUsers("alice", "bob")
	})
}

func TestAllCredentialsAreTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGuarded(t, Config{})
		g.set("x", "xavier")
		g.set("y", "yolanda")
		g.setNode("1", "nina", "bob")
		g.want("a", private, secrets("x", "y", "none"))
		g.wantUsers("xavier", "yolanda", "nina", "bob")
		wantReady(t, g.want("a", private, secrets("x", "y")))
		wantReady(t, g.want("n", private)) // every pod may use the node's login
		g.wantUsers("xavier", "yolanda", "nina", "bob")

		g.setNode("2", "nina")
		g.want("b", "r.io/team/app:1", policy(v1.PullAlways), secrets("x"))
		wantWait(t, g.want("b", private, policy(v1.PullAlways), secrets("x")), ReasonPull,
			// the same text of several registries appears once
			"401 Unauthorized for [redacted]", failureShown)
		g.runtime.deny = func(_, user string) error { return fmt.Errorf("no %s today", user) }
		g.err = errors.New("credential provider p: broken")
		g.want("c", private, policy(v1.PullAlways), secrets("x"))
		wantWait(t, g.want("c", private, policy(v1.PullAlways), secrets("x")), ReasonPull,
			"[no [redacted] today, credential provider p: broken]", failureShown)
	})
}

func TestMissingSecretsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGuarded(t, Config{})
		g.secrets["opaque"] = &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "opaque"}, Type: v1.SecretTypeOpaque,
		}
		all := secrets("gone", "opaque", "lost", "")
		g.want("a", private, all)
		g.want("a", private, all)
		g.wantEvents(
			`a/ Warning FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (gone, lost); `+
				`attempting to pull the image may not succeed.`,
			`a/ Warning FailedToRetrieveImagePullSecret: Unable to use some image pull secrets: Secret ns/opaque: its `+
				`type is "Opaque": `+
				`a pull secret's is kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg`,
			`a/c Normal Pulling: Pulling image "r.io/team/app:1"`,
			`a/c Warning Failed: Failed to pull image "r.io/team/app:1": 401 Unauthorized for -`,
			`a/c Warning Failed: Error: ErrImagePull`)
		g.set("lost", "alice") // and with the Secret it is tried at once
		g.want("a", private, all)
		wantReady(t, g.want("a", private, all))
		g.wantUsers("-", "alice")
	})
}

func TestCorrectedCredentialsAreTriedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGuarded(t, Config{})
		g.set("s", "eve")
		for range 5 {
			g.want("a", private, secrets("s"))
			g.sleep(DefaultBackoffMax)
		}
		g.want("a", private, secrets("s"))
		if res := g.want("a", private, secrets("s")); res.Reason != ReasonPull {
			t.Errorf("result is %+v, want a failure", res)
		}
		g.set("s", "mallory") // wrong again: the back-off starts again
		g.want("a", private, secrets("s"))
		g.sleep(failureShown)
		wantWait(t, g.want("a", private, secrets("s")), ReasonBackOff,
			`Back-off pulling image "r.io/team/app:1": ErrImagePull: 401 Unauthorized for [redacted]`,
			DefaultBackoffInitial-failureShown)
		g.set("s", "alice")
		g.want("a", private, secrets("s"))
		wantReady(t, g.want("a", private, secrets("s")))
	})
}

func TestChangedNodeCredentialsWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGuarded(t, Config{})
		g.want("a", private)
		g.want("b", private)
		g.takeWoken()
		g.sleep(DefaultBackoffInitial - time.Second) // nobody is woken without a reason
		g.wantWoken()
		g.setNode("changed", "alice")
		g.sleep(nodeCheck)
		g.wantWoken("a", "b")
		g.want("a", private)
		wantReady(t, g.want("a", private))
		g.forget("b")
		g.takeWoken()
		g.setNode("changed again")
		g.sleep(10 * nodeCheck)
		g.wantWoken() // no pod is in back-off any more, and the checks have stopped
		if g.Manager.node.timer != nil {
			t.Error("the node's credentials are still looked at")
		}
	})
}

// TestCredentialsThatChangeDuringTheirPull corrects the login during its pull: after the failure,
// the pod tries again at once.
func TestCredentialsThatChangeDuringTheirPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGuarded(t, Config{})
		var release func(error)
		g.runtime.deny = nil
		g.runtime.pull, release = held()
		g.setNode("1", "eve")
		g.want("a", private)
		g.setNode("2", "alice")
		g.want("a", private)
		release(errPull)
		g.runtime.pull = nil
		g.want("a", private)
		g.wantUsers("eve", "alice")

		// With another Secret, the pull with the first one is ended.
		g.runtime.pull, _ = held()
		g.set("s", "eve")
		g.want("b", private, policy(v1.PullAlways), secrets("s"))
		g.set("s", "bob")
		g.want("b", private, policy(v1.PullAlways), secrets("s"))
		g.wantUsers("eve", "alice", "eve", "bob")
		g.forget("b")
		if got := g.Progress(context.Background()); len(got) != 0 {
			t.Errorf("progress is %+v", got)
		}
	})
}

func TestForgottenPodWaitsForNoPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGuarded(t, Config{MaxParallelPulls: 1})
		g.hold = make(chan struct{})
		g.want("a", private)
		g.want("b", "s.io/b:1")
		g.forget("a")
		close(g.hold)
		synctest.Wait()
		wantReady(t, g.want("b", "s.io/b:1"))
	})
}

// TestPullThatCannotBeNoted has a full disk: a pull that could not be recorded is not made.
func TestPullThatCannotBeNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startGuarded(t, Config{})
		if err := os.WriteFile(filepath.Join(g.root, "image_manager"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		g.want("a", "s.io/b:1")
		res := g.want("a", "s.io/b:1")
		if res.Reason != ReasonPull ||
			!strings.HasPrefix(res.Message, `Failed to record image pull intent for container image "s.io/b:1": `) {
			t.Errorf("result is %+v", res)
		}
		g.wantPulls()
		g.sleep(failureShown)
		if res := g.want("a", "s.io/b:1"); res.Reason != ReasonBackOff {
			t.Errorf("result is %+v, want a back-off", res)
		}
	})
}

// TestNothingSecretIsTold has registries that repeat all that was sent to them, and checks
// everything that a user can read.
func TestNothingSecretIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := newNode()
		n.set("a", "alice")
		n.setNode("s", "nina")
		b := start(t, Config{}, Deps{
			Node:   n,
			Secret: n.Secret,
			Records: records.New(t.TempDir(), records.Policy{},
				slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.Level(-100)}))),
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.Level(-100)})),
		})
		b.runtime.deny = func(_, user string) error {
			basic := base64.StdEncoding.EncodeToString([]byte(user + ":pw-" + user))
			return fmt.Errorf("401: %s:pw-%s, pw-%s, Basic %s, %s, \xff%s", user, user, user, basic,
				strings.TrimRight(basic, "="), strings.Repeat("é", maxText))
		}
		var shown []string
		for range 2 {
			shown = append(shown, fmt.Sprintf("%+v", b.want("a", private, secrets("a"))),
				fmt.Sprintf("%+v", b.Progress(context.Background())))
			b.sleep(failureShown)
		}
		b.runtime.deny = nil
		b.sleep(time.Hour)
		b.want("a", private, secrets("a"))
		wantReady(t, b.want("a", private, secrets("a")))
		b.want("b", "r.io/other:1", secrets("a"))
		shown = append(append(shown, b.takeEvents()...), log.String())
		all := strings.Join(shown, "\n")
		for _, user := range []string{"alice", "nina"} {
			for _, secret := range []string{
				user, "pw-" + user, base64.StdEncoding.EncodeToString([]byte(user + ":pw-" + user)),
			} {
				if strings.Contains(all, strings.TrimRight(secret, "=")) {
					t.Errorf("%s is shown in:\n%s", secret, all)
				}
			}
		}
		if !strings.Contains(all, "401: [redacted]") || strings.ToValidUTF8(all, "") != all {
			t.Errorf("shown:\n%s", all)
		}
		for _, line := range shown[:2] {
			if len(line) > 3*maxText {
				t.Errorf("a message has %d bytes", len(line))
			}
		}
	})
}

func TestHead(t *testing.T) {
	for text, want := range map[string]string{
		"":        "",
		"abcdef":  "abcdef",
		"abcdefg": "abc…",
		"abéefg":  "ab…",
		"aééé":    "aé…",
	} {
		if got := head(text, 6); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}
