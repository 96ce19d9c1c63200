package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workloads are the folders of the kinds that a server has only with --workloads.
var workloads = []string{
	"controllerrevisions", "cronjobs", "daemonsets", "deployments", "horizontalpodautoscalers", "jobs", "replicasets",
	"statefulsets",
}

// ErrCopied is of a store whose revisions say nothing about the age of its objects.
var ErrCopied = errors.New(
	"the store was filled key by key, not by a snapshot: it does not say what is older than its namespace",
)

// RemoveForgotten removes the workloads that were in a namespace when it was deleted by a server
// that did not serve them, and returns how many. They would come back to life in another namespace
// of that name, or belong to none. prefix is where the store has the API's content. The server has
// not started: nobody else writes.
//
// The store's revisions say what is older than its namespace, because a clock can be set back. If
// one of the workloads is older than kube-system, which is as old as the API, that is not so, and
// the error is [ErrCopied].
func RemoveForgotten(ctx context.Context, client *clientv3.Client, prefix string) (removed int, err error) {
	folder := func(kind string) string { return path.Join("/", prefix, kind) + "/" }
	namespaces := map[string]int64{} // by name, the revision in which it was made
	err = keys(ctx, client, folder("namespaces"), func(name string, made int64) error {
		namespaces[name] = made
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("list the namespaces: %w", err)
	}
	var forgotten []string
	for _, kind := range workloads {
		err := keys(ctx, client, folder(kind), func(name string, made int64) error {
			if made < namespaces[metav1.NamespaceSystem] {
				return ErrCopied
			}
			namespace, _, _ := strings.Cut(name, "/")
			if of, ok := namespaces[namespace]; !ok || of > made {
				forgotten = append(forgotten, folder(kind)+name)
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("look for %s of namespaces that are gone: %w", kind, err)
		}
	}
	for i, key := range forgotten {
		if _, err := client.Delete(ctx, key); err != nil {
			return i, fmt.Errorf("remove %s, whose namespace is gone: %w", key, err)
		}
	}
	return len(forgotten), nil
}

// keys calls do with the name of each key in a folder, and the revision in which it was made.
func keys(ctx context.Context, client *clientv3.Client, folder string, do func(name string, made int64) error) error {
	answer, err := client.Get(ctx, folder, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for _, kv := range answer.Kvs {
		if err := do(strings.TrimPrefix(string(kv.Key), folder), kv.CreateRevision); err != nil {
			return err
		}
	}
	return nil
}
