package watched

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/source/objects"
)

var errAway = errors.New("dial tcp: connection refused")

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a",
		errors.New("no relationship found between node \"n\" and this object"))
}

func TestOneWatchForAllWhoUseAnObject(t *testing.T) {
	run(t, func(b *bench) {
		b.server.put(configMap("a", "1"))
		one, two := podWith("1", "a"), podWith("2", "a", "b")
		b.Use(one)
		b.expect("list configmap ns/a", "watch configmap ns/a", listMaster, watchMaster)
		b.Use(one)
		b.Use(two)
		b.expect("list configmap ns/b", "watch configmap ns/b")
		if got := b.value(two, "a"); got != "1" {
			t.Error(got)
		}
		if got := b.value(two, "b"); got != `configmap "b" not found` {
			t.Error(got)
		}
		b.wakes()
		b.server.put(configMap("a", "2"))
		if got := b.wakes(); got != "1 2" {
			t.Errorf("woke %q", got)
		}
		b.server.put(configMap("b", "3"))
		if got := b.wakes(); got != "2" || b.value(two, "b") != "3" {
			t.Errorf("woke %q, which read %q", got, b.value(two, "b"))
		}
		b.server.remove(objects.KeyOf(configMap("b", "")))
		if got := b.wakes(); got != "2" || b.value(two, "b") != `configmap "b" not found` {
			t.Errorf("woke %q, which read %q", got, b.value(two, "b"))
		}

		b.Drop("2")
		synctest.Wait()
		if n := len(b.server.watches); n != 2 {
			t.Errorf("%d watches with one user left, want those of a and the master service", n)
		}
		if got := b.value(two, "b"); got != `object "ns"/"b" not registered` {
			t.Error(got)
		}
		if got := b.value(one, "a"); got != "2" {
			t.Error(got)
		}
		b.Drop("1")
		b.Drop("1")
		synctest.Wait()
		if n := len(b.server.watches) + len(b.entries) + len(b.pods); n != 0 {
			t.Errorf("%d things are left of pods that are gone", n)
		}
		b.expect()
		time.Sleep(time.Hour)
		b.expect()
	})
}

// The objects that a pod uses may change while it runs: an ephemeral container may add references.
func TestUseChanges(t *testing.T) {
	run(t, func(b *bench) {
		b.Use(podWith("1", "a"))
		b.Use(podWith("1", "a", "b"))
		b.Use(podWith("1", "b"))
		synctest.Wait()
		if _, there := b.entries[objects.KeyOf(configMap("a", ""))]; there || len(b.entries) != 2 {
			t.Errorf("entries: %v", b.entries)
		}
	})
}

func TestUsedBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put(configMap("a", "1"))
		w := newWatcher(s, Deps{Wake: func(types.UID) {}})
		pod := podWith("1", "a")
		w.Use(pod)
		if _, err := w.ConfigMap(pod, "a"); !errors.Is(err, ErrPending) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		if _, err := w.ConfigMap(pod, "a"); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
		w.Use(podWith("2", "late")) // too late: it must only not break anything
		if _, err := w.ConfigMap(pod, "a"); err != nil {
			t.Errorf("what was known is gone: %v", err)
		}
	})
}

func TestPendingHasAnEnd(t *testing.T) {
	run(t, func(b *bench) {
		answer := make(chan struct{})
		b.server.failing(func(string, objects.Key) error {
			b.server.mu.Unlock()
			<-answer
			b.server.mu.Lock()
			return nil
		})
		pod := podWith("1", "a")
		b.Use(pod)
		synctest.Wait()
		if _, err := b.ConfigMap(pod, "a"); !errors.Is(err, ErrPending) {
			t.Error(err)
		}
		what, until := b.Await(pod)
		if what != "configmap ns/a" || time.Until(until) != patience {
			t.Errorf("waits for %q until %v", what, until)
		}
		time.Sleep(patience)
		if got := b.value(pod, "a"); got != "failed to sync configmap cache: timed out waiting for the condition" {
			t.Error(got)
		}
		if what, _ := b.Await(pod); what != "" {
			t.Errorf("still waits for %q", what)
		}
		close(answer)
		if got := b.wakes(); got != "1" {
			t.Errorf("woke %q", got)
		}
		if got := b.value(pod, "a"); got != `configmap "a" not found` {
			t.Error(got)
		}
	})
}

func TestServerAway(t *testing.T) {
	run(t, func(b *bench) {
		b.server.put(configMap("a", "1"))
		pod, late := podWith("1", "a"), podWith("2", "b")
		b.Use(pod)
		synctest.Wait()
		away := func(string, objects.Key) error { return errAway }
		b.server.failing(away)
		b.server.drop()
		b.Use(late)
		b.wakes()
		time.Sleep(5 * time.Minute)
		if got := b.value(pod, "a"); got != "1" {
			t.Errorf("the last known value is %q", got)
		}
		if got := b.value(late, "b"); got != "failed to sync configmap cache: dial tcp: connection refused" {
			t.Error(got)
		}
		// three objects, each at most once in 5 s except at first
		if n := len(b.server.took()); n > 3*70+30 {
			t.Errorf("%d calls in 5 minutes", n)
		}
		if got := b.wakes(); got != "" {
			t.Errorf("woke %q for the same error again and again", got)
		}
		b.server.failing(nil)
		b.server.put(configMap("a", "2"))
		b.server.put(configMap("b", "3"))
		time.Sleep(kube.Retry.Most * 2)
		if got := b.wakes(); got != "1 2" || b.value(pod, "a") != "2" || b.value(late, "b") != "3" {
			t.Errorf("woke %q, a=%q b=%q", got, b.value(pod, "a"), b.value(late, "b"))
		}
	})
}

// An API server that was restored to an earlier state counts its versions anew. The known state
// must not count as newer.
func TestRestoredToAnEarlierState(t *testing.T) {
	run(t, func(b *bench) {
		b.server.put(configMap("a", "1"))
		b.server.put(configMap("a", "2"))
		pod := podWith("1", "a")
		b.Use(pod)
		synctest.Wait()
		b.server.failing(func(string, objects.Key) error { return errAway })
		b.server.drop()
		time.Sleep(time.Minute)
		b.server.failing(nil)
		b.server.version = 10
		b.server.put(configMap("a", "1"))
		time.Sleep(kube.Retry.Most * 2)
		if got := b.value(pod, "a"); got != "1" {
			t.Errorf("a=%q", got)
		}
		b.server.put(configMap("a", "3"))
		if got := b.value(pod, "a"); got != "3" {
			t.Errorf("a=%q: the watch goes on from a version that is still to come", got)
		}
	})
}

func TestWatchEnds(t *testing.T) {
	run(t, func(b *bench) {
		b.server.put(configMap("a", "1"))
		pod := podWith("1", "a")
		b.Use(pod)
		synctest.Wait()
		b.server.took()
		time.Sleep(time.Minute)
		b.server.drop()
		b.expect("watch configmap ns/a", watchMaster) // resumed at once, not listed again
		b.server.drop()
		b.expect()
		time.Sleep(kube.Retry.First * 2) // too soon after the last failure
		b.expect("watch configmap ns/a", watchMaster)
		time.Sleep(time.Minute)
		b.server.mu.Lock()
		b.server.version++
		cm := configMap("a", "2")
		cm.ResourceVersion = "1000"
		b.server.objects[objects.KeyOf(cm)] = cm // changes between two watches
		b.server.mu.Unlock()
		b.server.drop()
		if got := b.value(pod, "a"); got != "2" {
			t.Errorf("a=%q: what changed between two watches is lost", got)
		}
	})
}

func TestExpired(t *testing.T) {
	for name, err := range map[string]error{
		"gone": &apierrors.StatusError{ErrStatus: metav1.Status{
			Code:    http.StatusGone,
			Reason:  metav1.StatusReasonGone,
			Message: "too old",
		}},
		"expired": apierrors.NewResourceExpired("too old resource version"),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bench) {
				b.server.put(configMap("a", "1"))
				pod := podWith("1", "a")
				b.Use(pod)
				synctest.Wait()
				time.Sleep(time.Minute)
				b.server.took()
				status := err.(apierrors.APIStatus).Status()
				b.server.send(watch.Event{Type: watch.Error, Object: &status})
				b.expect("list configmap ns/a", "watch configmap ns/a", listMaster, watchMaster)
				if got := b.wakes(); got != "1" { // from the beginning
					t.Errorf("woke %q", got)
				}
				once := true
				b.server.failing(func(verb string, key objects.Key) error {
					if verb == "watch" && key.Name == "a" && once {
						once = false
						return err
					}
					return nil
				})
				time.Sleep(time.Minute)
				b.server.drop()
				synctest.Wait()
				b.expect("watch configmap ns/a", "list configmap ns/a", "watch configmap ns/a", watchMaster)
			})
		})
	}
}

func TestBookmarksMoveTheVersionOn(t *testing.T) {
	run(t, func(b *bench) {
		b.server.put(configMap("a", "1"))
		b.Use(podWith("1", "a"))
		synctest.Wait()
		b.wakes()
		b.server.send(watch.Event{
			Type: watch.Bookmark, Object: &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "777"}},
		})
		synctest.Wait()
		for _, e := range b.entries {
			if len(e.items) > 1 {
				t.Errorf("a bookmark is taken for an object: %v", e.items)
			}
		}
		if got := b.wakes(); got != "" {
			t.Errorf("woke %q", got)
		}
	})
}

func TestBusyServer(t *testing.T) {
	run(t, func(b *bench) {
		b.server.failing(func(string, objects.Key) error { return apierrors.NewTooManyRequests("slow down", 7) })
		pod := podWith("1", "a")
		b.Use(pod)
		b.expect("list configmap ns/a", listMaster)
		time.Sleep(7*time.Second - 1)
		b.expect()
		time.Sleep(time.Nanosecond)
		b.expect("list configmap ns/a", listMaster)
		if got := b.value(pod, "a"); !strings.HasPrefix(got, "failed to sync configmap cache: ") {
			t.Error(got)
		}
	})
}

func TestForbidden(t *testing.T) {
	run(t, func(b *bench) {
		b.server.put(configMap("a", "1"))
		b.server.failing(func(_ string, key objects.Key) error {
			if key.Name == "a" {
				return forbidden()
			}
			return nil
		})
		pod := podWith("1", "a")
		b.Use(pod)
		synctest.Wait()
		if _, err := b.ConfigMap(pod, "a"); !errors.Is(err, ErrPending) {
			t.Errorf("the first refusal is told: %v", err)
		}
		time.Sleep(kube.Retry.First * 2)
		if got := b.value(pod, "a"); got != forbidden().Error() {
			t.Error(got)
		}
		b.server.failing(nil)
		time.Sleep(kube.Retry.Most * 2)
		if got := b.value(pod, "a"); got != "1" {
			t.Error(got)
		}
	})
}

func TestImmutable(t *testing.T) {
	run(t, func(b *bench) {
		fixed := configMap("a", "1")
		fixed.Immutable = ptr.To(true)
		b.server.put(fixed)
		b.server.put(configMap("b", "1"))
		pod := podWith("1", "a", "b")
		b.Use(pod)
		b.expect("list configmap ns/a", "list configmap ns/b", "watch configmap ns/b", listMaster, watchMaster)
		b.server.remove(objects.KeyOf(fixed))
		b.server.put(configMap("a", "2"))
		fixed = configMap("b", "2")
		fixed.Immutable = ptr.To(true)
		b.server.put(fixed) // becomes immutable while it is watched
		synctest.Wait()
		b.server.put(configMap("b", "3"))
		if a, c := b.value(pod, "a"), b.value(pod, "b"); a != "1" || c != "2" {
			t.Errorf("a=%q b=%q", a, c)
		}
		time.Sleep(time.Hour)
		b.expect()
		b.Drop("1")
		b.Use(pod) // no pod had it: the next one may see another object
		if a := b.value(pod, "a"); a != "2" {
			t.Errorf("a=%q", a)
		}
	})
}

// An object that cannot change may be deleted and made again. A pod that comes later reads it anew,
// and the pod that has it keeps it.
func TestLaterPodsReadAnew(t *testing.T) {
	run(t, func(b *bench) {
		using := func(uid string) *v1.Pod {
			pod := podWith(uid, "a")
			pod.Spec.Volumes = append(pod.Spec.Volumes,
				v1.Volume{
					Name: "d",
					VolumeSource: v1.VolumeSource{
						PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
					},
				})
			return pod
		}
		put := func(version string) {
			fixed := configMap("a", version)
			fixed.Immutable = ptr.To(true)
			b.server.put(fixed)
			b.server.put(&v1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: types.UID("c" + version)},
				Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "v" + version},
				Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
			})
			b.server.put(&v1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "v" + version},
				Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{
					Namespace: "ns",
					Name:      "c",
					UID:       types.UID("c" + version),
				}},
			})
		}
		has := func(pod *v1.Pod, version string) {
			t.Helper()
			if got := b.value(pod, "a"); got != version {
				t.Errorf("pod %s reads %q, want %q", pod.UID, got, version)
			}
			if pv, err := b.Resolve(pod, "c"); err != nil || pv.Name != "v"+version {
				t.Errorf("pod %s has the volume %v, %v, want v%s", pod.UID, pv, err, version)
			}
		}
		put("1")
		one := using("1")
		b.Use(one)
		has(one, "1")
		b.server.remove(objects.KeyOf(configMap("a", "")))
		put("2")
		two := using("2")
		b.Use(two)
		b.Use(one)
		has(one, "1")
		has(two, "2")
		b.Drop("1")
		has(two, "2")
		b.Drop("2")
		synctest.Wait()
		if n := len(b.entries) + len(b.pods); n != 0 {
			t.Errorf("%d things are left of pods that are gone", n)
		}
	})
}

func TestServices(t *testing.T) {
	run(t, func(b *bench) {
		service := func(namespace, name, ip string) *v1.Service {
			return &v1.Service{
				ObjectMeta: metav1.ObjectMeta{
					Namespace:   namespace,
					Name:        name,
					UID:         "s",
					Annotations: map[string]string{"long": "text"},
				},
				Spec: v1.ServiceSpec{
					ClusterIP: ip,
					Ports:     []v1.ServicePort{{Port: 80}},
					Selector:  map[string]string{"a": "b"},
				},
			}
		}
		for _, s := range []*v1.Service{
			service("default", "kubernetes", "10.0.0.1"), service("default", "other", "10.0.0.2"),
			service("ns", "web", "10.0.0.3"),
		} {
			b.server.put(s)
		}
		linked, plain := podWith("1"), podWith("2")
		linked.Spec.EnableServiceLinks = nil
		b.Use(linked)
		b.Use(plain)
		b.expect("list services", "watch services", listMaster, watchMaster)
		names := func(pod *v1.Pod) string {
			services, read := b.Services(pod)
			if !read {
				return "not read"
			}
			var out []string
			for _, s := range services {
				if len(s.Annotations)+len(s.Spec.Selector) > 0 {
					t.Errorf("kept of %s what nobody reads", s.Name)
				}
				out = append(out, s.Name)
			}
			if len(out) == 2 && out[0] > out[1] {
				out[0], out[1] = out[1], out[0]
			}
			return strings.Join(out, " ")
		}
		if got := names(linked); got != "kubernetes web" {
			t.Error(got)
		}
		if got := names(plain); got != "kubernetes" {
			t.Error(got)
		}
		b.wakes()
		b.server.put(service("ns", "db", "10.0.0.4"))
		if got := b.wakes(); got != "" {
			t.Errorf("woke %q: a Service is only read when a container starts", got)
		}
		b.server.remove(objects.Key{Kind: KindService, Namespace: "ns", Name: "web"})
		synctest.Wait()
		if got := names(linked); got != "db kubernetes" {
			t.Error(got)
		}
		b.Drop("1")
		synctest.Wait()
		if got := names(linked); got != "not read" {
			t.Error(got)
		}
	})
}

func TestRuntimeClasses(t *testing.T) {
	run(t, func(b *bench) {
		pod := podWith("1")
		pod.Spec.RuntimeClassName = ptr.To("fast")
		b.Use(pod)
		b.expect("list runtimeclasses", "watch runtimeclasses", listMaster, watchMaster)
		if b.RuntimeClass("fast") != nil {
			t.Error("a class from nowhere")
		}
		b.wakes()
		b.server.put(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Handler: "x"})
		if got := b.wakes(); got != "1" || b.RuntimeClass("fast") == nil {
			t.Errorf("woke %q", got)
		}
	})
}

func TestClaims(t *testing.T) {
	claim := func(change func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
		c := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c1"},
			Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "v"},
			Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
		}
		change(c)
		return c
	}
	volume := func(change func(*v1.PersistentVolume)) *v1.PersistentVolume {
		v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "c", UID: "c1"}
		change(v)
		return v
	}
	ok, same := func(*v1.PersistentVolumeClaim) {}, func(*v1.PersistentVolume) {}
	elsewhere := func(v *v1.PersistentVolume) {
		zone := v1.NodeSelectorRequirement{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{"b"}}
		v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{zone}}},
		}}
	}
	for _, c := range []struct {
		name   string
		claim  *v1.PersistentVolumeClaim
		volume *v1.PersistentVolume
		want   string // the error, empty for none
	}{
		{"bound", claim(ok), volume(same), ""},
		{"no claim", nil, nil, `failed to fetch PVC from API server: persistentvolumeclaims "c" not found`},
		{"no volume", claim(ok), nil, `failed to fetch PV v from API server: persistentvolumes "v" not found`},
		{
			"going", claim(func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = ptr.To(metav1.Now()) }),
			volume(same), "PVC is being deleted",
		},
		{"going, in use", claim(func(c *v1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
		}), volume(same), ""},
		{
			"pending", claim(func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimPending }), volume(same),
			"PVC is not bound",
		},
		{
			"unnamed", claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "" }), volume(same),
			"PVC has empty pvc.Spec.VolumeName",
		},
		{
			"volume of nobody", claim(ok), volume(func(v *v1.PersistentVolume) { v.Spec.ClaimRef = nil }),
			"found PV object v but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
		},
		{
			"volume of another", claim(ok), volume(func(v *v1.PersistentVolume) { v.Spec.ClaimRef.UID = "c0" }),
			"found PV object v but its pv.Spec.ClaimRef.UID c0 does not point to claim.UID c1",
		},
		{"on another node", claim(ok), volume(elsewhere), "no matching NodeSelectorTerms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(b *bench) {
				if c.claim != nil {
					b.server.put(c.claim)
				}
				if c.volume != nil {
					b.server.put(c.volume)
				}
				pod := podWith("1")
				pod.Spec.Volumes = []v1.Volume{{
					Name: "d",
					VolumeSource: v1.VolumeSource{
						PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
					},
				}}
				b.Use(pod)
				synctest.Wait()
				pv, err := b.Resolve(pod, "c")
				if c.want != "" && (err == nil || err.Error() != c.want) ||
					c.want == "" && (err != nil || pv.Name != "v") {
					t.Errorf("%v, %v; want %q", pv, err, c.want)
				}
				b.server.took()
				if c.want == "" {
					time.Sleep(time.Hour)
					b.expect() // a bound claim is not fetched again
					return
				}
				b.wakes()
				b.server.put(claim(ok))
				b.server.put(volume(same))
				time.Sleep(2 * kube.Retry.Most)
				if c.name != "on another node" && (b.wakes() != "1" || !resolves(b, pod)) {
					t.Error("the claim that was bound at last is not seen")
				}
			})
		})
	}
}

func resolves(b *bench, pod *v1.Pod) bool {
	_, err := b.Resolve(pod, "c")
	return err == nil
}

// The claim of an ephemeral volume must have been made for the pod that uses the claim.
func TestEphemeralClaims(t *testing.T) {
	run(t, func(b *bench) {
		pod := podWith("1")
		pod.Spec.Volumes = []v1.Volume{{
			Name: "d", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}},
		}}
		c := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-1-d", UID: "c1"},
			Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "v"},
			Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
		}
		v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: c.Name, UID: "c1"}
		b.server.put(c)
		b.server.put(v)
		b.Use(pod)
		synctest.Wait()
		if _, err := b.Resolve(pod, c.Name); err == nil ||
			err.Error() != "PVC ns/pod-1-d was not created for pod ns/pod-1 (pod is not owner)" {
			t.Error(err)
		}
		b.Drop("1")
		c.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1",
			Kind:       "Pod",
			Name:       pod.Name,
			UID:        pod.UID,
			Controller: ptr.To(true),
		}}
		b.server.put(c)
		b.Use(pod)
		synctest.Wait()
		if _, err := b.Resolve(pod, c.Name); err != nil {
			t.Error(err)
		}
	})
}

// A claim whose volume may grow on this node is fetched once a minute, for any number of pods, and
// no other claim is. Its volume is fetched only if the claim has changed.
func TestClaimsThatMayGrow(t *testing.T) {
	run(t, func(b *bench) {
		b.Watcher.deps.Grows = func(driver string) bool { return driver == "grows" }
		put := func(name, driver, size string) {
			c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns",
				Name:      name,
				UID:       types.UID(name),
			}}
			c.Spec.VolumeName, c.Status.Phase = "v-"+name, v1.ClaimBound
			c.Status.Capacity = v1.ResourceList{v1.ResourceStorage: quantity.MustParse(size)}
			v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v-" + name}}
			v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: name, UID: c.UID}
			v.Spec.Capacity = c.Status.Capacity
			if driver != "" {
				v.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver}
			}
			b.server.put(c)
			b.server.put(v)
		}
		put("a", "grows", "1Gi")
		put("b", "", "1Gi")
		put("c", "other", "1Gi")
		pods := []*v1.Pod{podWith("1"), podWith("2")}
		for _, pod := range pods {
			for _, claim := range []string{"a", "b", "c"} {
				pod.Spec.Volumes = append(pod.Spec.Volumes,
					v1.Volume{
						Name: claim,
						VolumeSource: v1.VolumeSource{
							PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
						},
					})
			}
			b.Use(pod)
			synctest.Wait() // the second pod makes the watcher fetch what is known again
		}
		b.wakes()
		b.server.took()
		time.Sleep(2*refreshPeriod + refreshPeriod/2)
		b.server.took() // the first round began before there were any claims
		time.Sleep(3 * refreshPeriod)
		const again = "get persistentvolumeclaim ns/a"
		b.expect(again, again, again)
		if got := b.wakes(); got != "" {
			t.Errorf("woke %q for nothing", got)
		}
		put("a", "grows", "2Gi")
		time.Sleep(refreshPeriod)
		b.expect(again, "get persistentvolume v-a")
		if got := b.wakes(); got != "1 2" {
			t.Errorf("woke %q", got)
		}
		for _, pod := range pods {
			pv, err := b.Resolve(pod, "a")
			if claim := b.Claim(pod, "a"); err != nil || pv.Spec.Capacity.Storage().String() != "2Gi" ||
				claim.Status.Capacity.Storage().String() != "2Gi" {
				t.Errorf("it is %v, %v, %v", pv, claim, err)
			}
		}
		changed := b.Claim(pods[0], "a").DeepCopy()
		changed.ResourceVersion, changed.Labels = "later", map[string]string{"k": "v"}
		b.Learn(changed)
		if b.Claim(pods[1], "a").Labels["k"] != "v" || b.wakes() != "1 2" {
			t.Error("what was learnt is not known")
		}
		// A claim with the same name that was made anew, or was deleted, is not the pods' claim.
		c := changed.DeepCopy()
		c.UID, c.Labels = "another", nil
		b.server.put(c)
		time.Sleep(refreshPeriod)
		if b.Claim(pods[0], "a").UID != "a" {
			t.Error("the pod has another claim")
		}
		b.server.failing(func(string, objects.Key) error { return errAway })
		time.Sleep(refreshPeriod)
		b.server.failing(nil)
		if _, err := b.Resolve(pods[0], "a"); err != nil {
			t.Error(err)
		}
		for _, pod := range pods {
			b.Drop(pod.UID)
		}
		b.server.took()
		time.Sleep(2 * refreshPeriod)
		b.expect()
	})
}
