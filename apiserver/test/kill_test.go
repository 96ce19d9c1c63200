//go:build cluster

package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// kills is how often TestKilledUnderWrites kills the server, unless $BERTH_APISERVER_KILLS says it.
const kills = 25

// client returns a client of the administrator.
func (s *server) client(t testing.TB) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.file("admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// ledger has what the server acknowledged. Each name belongs to one writer.
type ledger struct {
	t *testing.T

	mu sync.Mutex
	// kept has the resourceVersion of each object at its last acknowledged write, gone the names
	// whose deletion was acknowledged.
	kept map[string]uint64
	gone map[string]bool
	// last is the highest resourceVersion of all, floor what it was at the last kill.
	last, floor uint64
	// left is how many more writes the server may acknowledge before it is killed.
	left int
}

// version reads a resourceVersion. To clients it is a text, but this test is of the server.
func (l *ledger) version(o metav1.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		l.t.Errorf("%s has the resourceVersion %q", o.GetName(), o.GetResourceVersion())
	}
	return n
}

// acknowledge notes a write, and says whether it is the one after which the server is killed. A nil
// object was deleted.
func (l *ledger) acknowledge(name string, o *corev1.ConfigMap) (enough bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o == nil {
		l.gone[name] = true
	} else {
		version := l.version(o)
		if version <= l.floor {
			l.t.Errorf("%s has the resourceVersion %d, but before the last kill there was %d", name, version, l.floor)
		}
		l.kept[name], l.last = version, max(l.last, version)
	}
	l.left--
	return l.left == 0
}

// forget is called before a deletion: a server that is killed may have deleted the object or not.
func (l *ledger) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.kept, name)
}

// write creates, changes and deletes objects until the server is dead. It calls kill when there are
// enough acknowledged writes.
func (l *ledger) write(ctx context.Context, client kubernetes.Interface, prefix string, kill func()) {
	objects := client.CoreV1().ConfigMaps("default")
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s-%d", prefix, n)
		made, err := objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			return
		}
		if l.acknowledge(name, made) {
			kill()
		}
		made.Data = map[string]string{"changed": "yes"}
		if made, err = objects.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
			return
		}
		if l.acknowledge(name, made) {
			kill()
		}
		if n%3 != 0 {
			continue
		}
		l.forget(name)
		if err := objects.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return
		}
		if l.acknowledge(name, nil) {
			kill()
		}
	}
}

// compare fails the test for each object that is not as the server acknowledged it.
func (l *ledger) compare(ctx context.Context, client kubernetes.Interface) {
	list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	found := map[string]uint64{}
	for i := range list.Items {
		found[list.Items[i].Name] = l.version(&list.Items[i])
	}
	for name, version := range l.kept {
		if found[name] < version { // the write after that may have been made without a word
			l.t.Errorf("%s is lost: it has the resourceVersion %d, acknowledged was %d", name, found[name], version)
		}
	}
	for name := range l.gone {
		if _, there := found[name]; there {
			l.t.Errorf("%s is there again", name)
		}
	}
}

// TestKilledUnderWrites kills the server again and again while clients write. No acknowledged write
// may be lost, no resourceVersion may go back, and a client that watches all the time must come to
// know what the store has.
func TestKilledUnderWrites(t *testing.T) {
	rounds := kills
	if text := os.Getenv("BERTH_APISERVER_KILLS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const writers = 4
	s := start(t, "--scheduler=false")
	l := &ledger{t: t, kept: map[string]uint64{}, gone: map[string]bool{}}
	watched := follow(t, s.client(t))
	for round := range rounds {
		client := s.client(t)
		l.left = 1 + rand.IntN(150)
		var all sync.WaitGroup
		for writer := range writers {
			all.Go(func() { l.write(t.Context(), client, fmt.Sprintf("c-%d-%d", round, writer), func() { go s.kill() }) })
		}
		all.Wait()
		<-s.done
		l.floor = l.last
		s.start(t)
	}
	l.compare(t.Context(), s.client(t))
	s.await(t, "the watch knows everything", func() error {
		for name, version := range l.kept {
			o, there, err := watched.GetByKey("default/" + name)
			if err != nil || !there || l.version(o.(*corev1.ConfigMap)) < version {
				return fmt.Errorf("it does not know %s, %w", name, err)
			}
		}
		for name := range l.gone {
			if _, there, err := watched.GetByKey("default/" + name); err != nil || there {
				return fmt.Errorf("it still has %s, %w", name, err)
			}
		}
		return nil
	})
	t.Logf("%d objects kept, %d deleted, %d kills", len(l.kept), len(l.gone), rounds)
}

// follow watches ConfigMaps until the test ends, and fails it when one goes back in time.
func follow(t *testing.T, client kubernetes.Interface) cache.Store {
	t.Helper()
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	l := &ledger{t: t}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		old, now := before.(*corev1.ConfigMap), after.(*corev1.ConfigMap)
		if old.UID == now.UID && l.version(now) < l.version(old) {
			t.Errorf("%s went from the resourceVersion %s to %s", now.Name, old.ResourceVersion, now.ResourceVersion)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	return informer.GetStore()
}
