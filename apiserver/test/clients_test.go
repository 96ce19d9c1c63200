//go:build cluster

package test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"

	"github.com/berthd/berth/apiserver/store"
)

// TestClients shows that programs with client-go work as with any API server. Its parts share one
// server, and each has objects of its own.
func TestClients(t *testing.T) {
	s := start(t, "--scheduler=false")
	s.eventually(t, "default", "get", "serviceaccount", "default", "-o", "jsonpath={.metadata.name}")
	for _, part := range []struct {
		name string
		run  func(*testing.T, *server)
	}{
		{"pages", pages},
		{"protobuf", protobuf},
		{"conflicts", conflicts},
		{"bookmarks", bookmarks},
		{"expired versions", expired},
		{"informers", informs},
		{"leader election", elects},
		{"volume attributes classes", deletesClasses},
		{"resource claims", claimsResources},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, s) })
	}
}

// configMaps makes n ConfigMaps with that label, and returns their names in order.
func configMaps(t testing.TB, client kubernetes.Interface, label string, n int) (names []string) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("%s-%d", label, i)
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": label}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// pages: a list in pages is of one moment, also if something changes between two of them.
func pages(t *testing.T, s *server) {
	client := s.client(t)
	objects := client.CoreV1().ConfigMaps("default")
	names := configMaps(t, client, "pages", 5)
	var got []string
	version, options := "", metav1.ListOptions{LabelSelector: "of=pages", Limit: 2}
	for {
		page, err := objects.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Items {
			got = append(got, o.Name)
		}
		if version == "" {
			version = page.ResourceVersion
			if err := objects.Delete(t.Context(), names[4], metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if page.ResourceVersion != version {
			t.Errorf("a page is of the resourceVersion %s, the first was of %s", page.ResourceVersion, version)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("the pages have %v, want %v", got, names)
	}
}

// protobuf: the API speaks it, also in watches, and writes what it reads.
func protobuf(t *testing.T, s *server) {
	config, err := clientcmd.BuildConfigFromFlags("", s.file("admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects := client.CoreV1().ConfigMaps("default")
	made, err := objects.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "protobuf"}, BinaryData: map[string][]byte{"k": {0, 255}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := objects.Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=protobuf", ResourceVersion: made.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := objects.Delete(t.Context(), "protobuf", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	event := <-w.ResultChan()
	last, ok := event.Object.(*corev1.ConfigMap)
	if event.Type != watch.Deleted || !ok || !slices.Equal(last.BinaryData["k"], []byte{0, 255}) {
		t.Errorf("the watch has %s %v", event.Type, event.Object)
	}
}

// conflicts: of writers who read the same version one succeeds, and the others hear of it.
func conflicts(t *testing.T, s *server) {
	client := s.client(t)
	objects := client.CoreV1().ConfigMaps("default")
	configMaps(t, client, "conflicts", 1)
	old, err := objects.Get(t.Context(), "conflicts-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const writers = 5
	done := make(chan error, writers)
	for i := range writers {
		go func() {
			mine := old.DeepCopy()
			mine.Data = map[string]string{"writer": fmt.Sprint(i)}
			_, err := objects.Update(t.Context(), mine, metav1.UpdateOptions{})
			if err != nil && apierrors.IsConflict(err) {
				err = errors.Join(err, errLost)
			}
			done <- err
		}()
	}
	won := 0
	for range writers {
		if err := <-done; err == nil {
			won++
		} else if !errors.Is(err, errLost) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d writers succeeded", won, writers)
	}
	if err := objects.Delete(t.Context(), old.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &old.ResourceVersion},
	}); !apierrors.IsConflict(err) {
		t.Errorf("a deletion of the old version: %v", err)
	}
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := objects.Get(t.Context(), old.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Data = nil
		_, err = objects.Update(t.Context(), now, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Error(err)
	}
}

// errLost is of a writer whom another one was faster than.
var errLost = errors.New("another writer was first")

// bookmarks: a watch can begin with what there is, and says when that is over.
func bookmarks(t *testing.T, s *server) {
	client := s.client(t)
	names := configMaps(t, client, "bookmarks", 2)
	w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{
		LabelSelector: "of=bookmarks", SendInitialEvents: new(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var got []string
	for event := range w.ResultChan() {
		o, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			t.Fatalf("the watch has %s %v", event.Type, event.Object)
		}
		if event.Type == watch.Bookmark {
			if o.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
				t.Errorf("the bookmark is %v", o)
			}
			break
		}
		got = append(got, string(event.Type)+" "+o.Name)
	}
	slices.Sort(got)
	if want := []string{"ADDED " + names[0], "ADDED " + names[1]}; !slices.Equal(got, want) {
		t.Errorf("the watch begins with %v, want %v", got, want)
	}
}

// compact makes the store of a server forget all versions but the last one.
func (s *server) compact(t *testing.T) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{store.Endpoint(s.dir)}, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	now, err := client.Get(t.Context(), "/")
	if err == nil {
		_, err = client.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// expired: whoever asks for a version that the store no longer has is told to list again. The kind
// is one without a watch cache, which may know versions that the store does not have.
func expired(t *testing.T, s *server) {
	client := s.client(t)
	s.compact(t)
	for name, ask := range map[string]func() error{
		"a list": func() error {
			_, err := client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{
				ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			})
			return err
		},
		"a watch": func() error {
			return firstError(client.RbacV1().ClusterRoles().Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"}))
		},
	} {
		if err := ask(); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("%s of a version that is gone: %v", name, err)
		}
	}
}

// firstError returns why a watch does not begin, or what its first event says.
func firstError(w watch.Interface, err error) error {
	if err != nil {
		return err
	}
	defer w.Stop()
	return apierrors.FromObject((<-w.ResultChan()).Object)
}

// informs: an informer sees every object in its last version, also after the server was away.
func informs(t *testing.T, s *server) {
	client := s.client(t)
	watched := follow(t, client)
	names := configMaps(t, client, "informs", 20)
	objects := client.CoreV1().ConfigMaps("default")
	versions := map[string]string{}
	for i, name := range names {
		if i == len(names)/2 {
			s.kill()
			s.start(t)
		}
		o, err := objects.Patch(t.Context(), name, "application/merge-patch+json", []byte(`{"data":{"k":"v"}}`),
			metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		versions[name] = o.ResourceVersion
	}
	s.await(t, "the informer knows the last versions", func() error {
		for name, version := range versions {
			o, there, err := watched.GetByKey("default/" + name)
			if err != nil || !there || o.(*corev1.ConfigMap).ResourceVersion != version {
				return fmt.Errorf("it does not know %s, %w", name, err)
			}
		}
		return nil
	})
}

// leaseDuration is how long a leader that is silent is waited for.
const leaseDuration = 20 * time.Second

// elects: of two candidates one leads at a time, and the second follows when the first gives up.
func elects(t *testing.T, s *server) {
	client := s.client(t)
	leads := make(chan string)
	candidate := func(name string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Name: "elects", Namespace: "default"}, Client: client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: leaseDuration, RenewDeadline: leaseDuration / 2, RetryPeriod: pollInterval, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leads <- name },
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			elector.Run(ctx)
		}()
		return func() { cancel(); <-ended }
	}
	stops := map[string]func(){"one": candidate("one"), "two": candidate("two")}
	first := <-leads
	lease, err := client.CoordinationV1().Leases("default").Get(t.Context(), "elects", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != first {
		t.Errorf("%s leads, the Lease says %+v, %v", first, lease.Spec, err)
	}
	stops[first]()
	delete(stops, first)
	second := <-leads
	if second == first {
		t.Errorf("%s leads after its end", second)
	}
	stops[second]()
}

// deletesClasses: a VolumeAttributesClass, which admission protects, is gone after its deletion.
func deletesClasses(t *testing.T, s *server) {
	s.apply(t, "{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, metadata: {name: fast}, "+
		"driverName: example.com, parameters: {iops: \"1\"}}")
	s.kubectl(t, "delete", "volumeattributesclass", "fast", "--timeout=60s")
}

// claimsResources: a pod's template makes a claim, which goes with the pod.
func claimsResources(t *testing.T, s *server) {
	s.apply(t, "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: gpu}, "+
		"spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: example.com}}]}}}}")
	s.apply(t, "{apiVersion: v1, kind: Pod, metadata: {name: claims}, spec: {containers: [{name: c, "+
		"image: registry.example/image:1}], resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]}}")
	claims := []string{"get", "resourceclaims", "-o", "jsonpath={.items[*].metadata.ownerReferences[*].name}"}
	s.eventually(t, "claims", claims...)
	s.kubectl(t, "delete", "pod", "claims", "--timeout=60s")
	s.eventually(t, "", claims...)
}
