package storage

import (
	"errors"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/apiserver/store"
)

// startStore starts a store of its own, which ends with the test.
func startStore(t *testing.T) *store.Store {
	t.Helper()
	dir := t.TempDir()
	unlock, err := store.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	s, err := store.Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestRemoveForgotten deletes a namespace and makes it again, as a server without workloads does:
// what was in the old one goes, and nothing else.
func TestRemoveForgotten(t *testing.T) {
	s := startStore(t)
	client := s.Client()
	defer client.Close()
	for _, key := range []string{
		"namespaces/again", "namespaces/gone", "namespaces/stays", "namespaces/stays-too",
		"deployments/again/old", "replicasets/gone/old", "jobs/stays/old", "jobs/stays-too/old", "pods/gone/other",
		"-namespaces/gone", "-namespaces/again", "namespaces/again", "deployments/again/new", "cronjobs/again/new",
	} {
		name, gone := strings.CutPrefix(key, "-")
		if _, err := client.Put(t.Context(), "/registry/"+name, "an object"); err != nil {
			t.Fatal(err)
		}
		if !gone {
			continue
		}
		if _, err := client.Delete(t.Context(), "/registry/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{2, 0} {
		if n, err := RemoveForgotten(t.Context(), client.Client, "/registry"); err != nil || n != want {
			t.Errorf("%d are removed, want %d: %v", n, want, err)
		}
	}
	left, err := client.Client.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, kv := range left.Kvs {
		names = append(names, strings.TrimPrefix(string(kv.Key), "/registry/"))
	}
	if want := []string{
		"cronjobs/again/new", "deployments/again/new", "jobs/stays-too/old", "jobs/stays/old", "namespaces/again",
		"namespaces/stays", "namespaces/stays-too", "pods/gone/other",
	}; !slices.Equal(names, want) {
		t.Errorf("the store has %v, want %v", names, want)
	}
}

// TestNothingIsForgottenInACopy: whoever copies a store's keys in their order makes every workload
// older than its namespace.
func TestNothingIsForgottenInACopy(t *testing.T) {
	client := startStore(t).Client()
	defer client.Close()
	for _, key := range []string{"deployments/mine/web", "namespaces/kube-system", "namespaces/mine"} {
		if _, err := client.Put(t.Context(), "/registry/"+key, "an object"); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := RemoveForgotten(t.Context(), client.Client, "/registry"); n != 0 || !errors.Is(err, ErrCopied) {
		t.Errorf("%d are removed: %v", n, err)
	}
	left, err := client.Client.Get(t.Context(), "/registry/deployments/mine/web")
	if err != nil || left.Count != 1 {
		t.Errorf("the Deployment is gone: %v", err)
	}
}
