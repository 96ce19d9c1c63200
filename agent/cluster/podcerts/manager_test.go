package podcerts

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/cluster/kube/fake"
)

const (
	signer = "example.com/signer"
	// life and refresh are those of each certificate that the signer issues.
	life, refresh = 24 * time.Hour, 12 * time.Hour
)

var resource = certificatesv1beta1.SchemeGroupVersion.WithResource("podcertificaterequests")

// bench is a manager, an API server, and a signer that answers when the test says so.
type bench struct {
	*Manager
	t      *testing.T
	server *fake.Server

	mu     sync.Mutex
	node   types.UID
	away   error
	woken  []string
	events []string
	log    bytes.Buffer
}

func run(t *testing.T, test func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, server: fake.New(), node: "node-uid"}
		defer b.server.Close()
		requests, err := kube.CertificateRequests(b.server.Conn(kube.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		locked := func(do func()) {
			b.mu.Lock()
			defer b.mu.Unlock()
			do()
		}
		b.Manager = New(Deps{
			Requests: requests, NodeName: "here",
			NodeUID: func() (uid types.UID) { locked(func() { uid = b.node }); return uid },
			Account: func(_ context.Context, namespace, name string) (account *v1.ServiceAccount, err error) {
				locked(func() {
					account, err = &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
						Namespace: namespace, Name: name, UID: types.UID("uid of " + name),
					}}, b.away
				})
				return account, err
			},
			Wake:  func(uid types.UID) { locked(func() { b.woken = append(b.woken, string(uid)) }) },
			Ready: func(ctx context.Context, _ error) bool { return ctx.Err() == nil },
			Event: func(pod *v1.Pod, _, kind, reason, message string) {
				locked(func() { b.events = append(b.events, strings.Join([]string{pod.Name, kind, reason, message}, ": ")) })
			},
			Logger: slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.Level(-100)})),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		test(t, b)
		if strings.Contains(b.log.String(), "PRIVATE KEY") {
			t.Errorf("the log quotes a key: %s", b.log.String())
		}
	})
}

// settle waits a moment, which the fake's answers take, until nothing is running any more.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// said returns the events and the woken pods since its last call.
func (b *bench) said() (events []string, woken string) {
	settle()
	b.mu.Lock()
	defer b.mu.Unlock()
	events, woken = b.events, strings.Join(slices.Compact(b.woken), " ")
	b.events, b.woken = nil, nil
	return events, woken
}

// asked returns the requests that the manager knows and nobody has answered.
func (b *bench) asked() (out []*certificatesv1beta1.PodCertificateRequest) {
	settle()
	b.Manager.mu.Lock()
	defer b.Manager.mu.Unlock()
	for _, r := range b.requests {
		if len(r.Status.Conditions) == 0 {
			out = append(out, r)
		}
	}
	return out
}

// answer is the signer's answer to a request.
func (b *bench) answer(r *certificatesv1beta1.PodCertificateRequest, condition, reason, chain string) {
	r = r.DeepCopy()
	r.Status.Conditions = []metav1.Condition{{
		Type: condition, Status: metav1.ConditionTrue, Reason: reason, Message: "because", LastTransitionTime: metav1.Now(),
	}}
	if chain != "" {
		at := func(d time.Duration) *metav1.Time { t := metav1.NewTime(time.Now().Add(d)); return &t }
		r.Status.CertificateChain = "leaf:\n" + block(chain) + "root:\n" + block("root")
		r.Status.NotBefore, r.Status.BeginRefreshAt, r.Status.NotAfter = at(0), at(refresh), at(life)
	}
	b.server.Put(resource, r)
	settle()
}

func (b *bench) issue(chain string) {
	b.t.Helper()
	asked := b.asked()
	if len(asked) != 1 {
		b.t.Fatalf("%d requests", len(asked))
	}
	b.answer(asked[0], "Issued", "Issued", chain)
}

func block(content string) string {
	return string(pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: []byte(content),
	}))
}

func podWith(uid string, kind string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid)},
		Spec: v1.PodSpec{
			ServiceAccountName: "sa",
			Volumes: []v1.Volume{{Name: "disk"}, {Name: "tls", VolumeSource: v1.VolumeSource{
				Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
					{DownwardAPI: &v1.DownwardAPIProjection{}},
					{PodCertificate: &v1.PodCertificateProjection{
						SignerName: signer, KeyType: kind, CredentialBundlePath: "bundle.pem",
						UserAnnotations: map[string]string{"example.com/a": "b"},
					}},
				}},
			}}},
		},
	}
}

// read returns the contents of a pod's certificates, or the error.
func (b *bench) read(pod *v1.Pod) string {
	_, chain, err := b.Certificate(pod, "tls", 1)
	if err != nil {
		return err.Error()
	}
	var out []string
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			b.t.Errorf("a block %s with headers %v", block.Type, block.Headers)
		}
		out = append(out, string(block.Bytes))
	}
	return strings.Join(out, " ")
}

// states returns the counts by state.
func (b *bench) states() map[string]int {
	out := map[string]int{}
	b.Count(func(_, state string, n int) { out[state] += n })
	return out
}

func (b *bench) want(pod *v1.Pod, text, state string) {
	b.t.Helper()
	settle()
	if got := b.read(pod); got != text {
		b.t.Errorf("got %q, want %q", got, text)
	}
	if diff := cmp.Diff(map[string]int{state: 1}, b.states()); diff != "" {
		b.t.Error(diff)
	}
}

// One pod may ask for thousands of keys. They are made one after the other, and not at all once the
// pod is gone.
func TestKeysAreMadeOneAtATime(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.making <- struct{}{} // somebody else's key is being made
		pod := podWith("u1", "ED25519")
		sources := &pod.Spec.Volumes[1].Projected.Sources
		for range 5 {
			*sources = append(*sources, (*sources)[1])
		}
		b.Use(pod)
		b.Use(podWith("u2", "ED25519"))
		if asked := b.asked(); len(asked) != 0 {
			t.Errorf("%d requests", len(asked))
		}
		b.Drop("u1")
		<-b.making
		if asked := b.asked(); len(asked) != 1 || asked[0].Spec.PodUID != "u2" {
			t.Errorf("requests %v", asked)
		}
	})
}

// A request names who asks, and its key is the one that the pod gets. Each type of key can be had.
func TestRequest(t *testing.T) {
	for _, kind := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		t.Run(kind, func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				pod := podWith("u1", kind)
				b.Use(pod)
				b.Use(pod)
				settle()
				if got := b.read(pod); !strings.HasSuffix(got, "of signer example.com/signer is not issued yet") {
					t.Errorf("before the answer: %s", got)
				}
				asked := b.asked()
				if len(asked) != 1 {
					t.Fatalf("%d requests", len(asked))
				}
				spec := asked[0].Spec
				proof, err := x509.ParseCertificateRequest(spec.StubPKCS10Request)
				if err != nil {
					t.Fatal(err)
				}
				if err := proof.CheckSignature(); err != nil {
					t.Error(err)
				}
				spec.StubPKCS10Request = nil
				if diff := cmp.Diff(certificatesv1beta1.PodCertificateRequestSpec{
					SignerName: signer, PodName: "pod-u1", PodUID: "u1", ServiceAccountName: "sa",
					ServiceAccountUID: "uid of sa", NodeName: "here", NodeUID: "node-uid",
					UnverifiedUserAnnotations: map[string]string{"example.com/a": "b"},
				}, spec); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Pod", Name: "pod-u1", UID: "u1",
				}}, asked[0].OwnerReferences); diff != "" {
					t.Error(diff)
				}
				b.issue("one")
				b.want(pod, "one root", "fresh")
				text, _, err := b.Certificate(pod, "tls", 1)
				if err != nil {
					t.Fatal(err)
				}
				der, _ := pem.Decode(text)
				key, err := x509.ParsePKCS8PrivateKey(der.Bytes)
				if err != nil {
					t.Fatal(err)
				}
				public := key.(crypto.Signer).Public()
				if !public.(interface{ Equal(x crypto.PublicKey) bool }).Equal(proof.PublicKey) {
					t.Error("the pod's key is not the one of the request")
				}
			})
		})
	}
}

// A certificate is replaced when its signer says so, with another key. The old one serves until
// then, and the pod is woken by the new one.
func TestRefresh(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		pod := podWith("u1", "ED25519")
		b.Use(pod)
		b.issue("one")
		old, _, _ := b.Certificate(pod, "tls", 1)
		b.said()
		time.Sleep(refresh - time.Minute)
		if n := len(b.asked()); n != 0 {
			t.Errorf("%d requests before it is time", n)
		}
		time.Sleep(jitter + time.Minute)
		b.want(pod, "one root", "fresh")
		b.issue("two")
		b.want(pod, "two root", "fresh")
		if now, _, _ := b.Certificate(pod, "tls", 1); bytes.Equal(now, old) {
			t.Error("the key is the old one")
		}
		if events, woken := b.said(); len(events) != 0 || woken != "u1" {
			t.Errorf("events %q, woken %q", events, woken)
		}
	})
}

// A signer that does not answer in time is an event, and the end of the certificate another. Each
// comes once.
func TestSilentSigner(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		pod := podWith("u1", "ED25519")
		b.Use(pod)
		b.issue("one")
		time.Sleep(refresh + jitter + overdue)
		b.want(pod, "one root", "overdue_for_refresh")
		time.Sleep(life)
		b.want(pod, "one root", "expired")
		events, _ := b.said()
		if len(events) != 2 || !strings.HasPrefix(events[0], "pod-u1: Warning: CertificateOverdueForRefresh: ") ||
			!strings.HasPrefix(events[1], "pod-u1: Warning: CertificateExpired: ") {
			t.Errorf("events %q", events)
		}
		b.issue("two")
		b.want(pod, "two root", "fresh")
	})
}

// A refusal is final, an event, and the pod's error. One that meets a renewal leaves the pod what
// it has until that ends.
func TestRefusal(t *testing.T) {
	for condition, verb := range map[string]string{"Denied": "was denied", "Failed": "failed"} {
		t.Run(condition, func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				pod := podWith("u1", "ED25519")
				b.Use(pod)
				asked := b.asked()
				b.answer(asked[0], condition, "UnsupportedKeyType", "")
				text := fmt.Sprintf("PodCertificateRequest ns/%s %s, reason=\"UnsupportedKeyType\", message=\"because\"",
					asked[0].Name, verb)
				b.want(pod, text, strings.ToLower(condition))
				events, woken := b.said()
				if diff := cmp.Diff([]string{"pod-u1: Warning: " + condition + ": " + text}, events); diff != "" {
					t.Error(diff)
				}
				if woken != "u1" {
					t.Errorf("woken %q", woken)
				}
				time.Sleep(life)
				if n := len(b.asked()); n != 0 {
					t.Errorf("%d more requests", n)
				}

				other := podWith("u2", "ED25519")
				b.Drop("u1")
				b.Use(other)
				b.issue("one")
				time.Sleep(refresh + jitter)
				b.answer(b.asked()[0], condition, "Policy", "")
				b.want(other, "one root", strings.ToLower(condition))
				time.Sleep(life - refresh)
				if got := b.read(other); !strings.Contains(got, `reason="Policy"`) {
					t.Errorf("after the end: %s", got)
				}
			})
		})
	}
}

// A request that was deleted is made anew. So is one that the API server does not show.
func TestDeletedRequest(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		pod := podWith("u1", "ED25519")
		b.Use(pod)
		first := b.asked()[0]
		b.server.Delete(resource, "ns", first.Name, nil)
		time.Sleep(time.Minute)
		if got := b.asked(); len(got) != 1 || got[0].Name == first.Name {
			t.Errorf("%d requests", len(got))
		}
		b.issue("one")
		b.want(pod, "one root", "fresh")
	})
}

// What is missing at first is waited for, and named.
func TestFailures(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.mu.Lock()
		b.node, b.away = "", errors.New("connection refused")
		b.mu.Unlock()
		pod := podWith("u1", "ED25519")
		b.Use(pod)
		b.want(pod, "reading service account ns/sa: connection refused", "not_yet_issued")
		if _, woken := b.said(); woken != "u1" {
			t.Errorf("woken %q", woken)
		}
		b.mu.Lock()
		b.away = nil
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.want(pod, "the API server has no Node object of this node yet", "not_yet_issued")
		b.mu.Lock()
		b.node = "node-uid"
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.issue("one")
		b.want(pod, "one root", "fresh")

		b.Drop("u1")
		if got := b.read(pod); got != "nobody has asked for the certificate" {
			t.Errorf("a pod that is gone: %s", got)
		}
		bad := podWith("u2", "RSA1024")
		b.Use(bad)
		b.want(bad, `making a key: the key type "RSA1024" is not known`, "not_yet_issued")
	})
}
