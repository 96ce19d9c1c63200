package images

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/filters"
)

// kept are containerd's leases, by their IDs.
type kept struct {
	leases.Manager
	all map[string]leases.Lease
}

func (k *kept) Create(_ context.Context, opts ...leases.Opt) (leases.Lease, error) {
	var lease leases.Lease
	for _, opt := range opts {
		if err := opt(&lease); err != nil {
			return lease, err
		}
	}
	k.all[lease.ID] = lease
	return lease, nil
}

func (k *kept) Delete(_ context.Context, lease leases.Lease, _ ...leases.DeleteOpt) error {
	delete(k.all, lease.ID)
	return nil
}

func (k *kept) List(_ context.Context, wanted ...string) ([]leases.Lease, error) {
	filter, err := filters.ParseAll(wanted...)
	if err != nil {
		return nil, err
	}
	var out []leases.Lease
	for _, lease := range k.all {
		if filter.Match(filters.AdapterFunc(func(path []string) (string, bool) {
			value, ok := lease.Labels[strings.Join(path[1:], ".")]
			return value, ok && path[0] == "labels"
		})) {
			out = append(out, lease)
		}
	}
	return out, nil
}

// A process is killed in the middle of its work. The next one ends its leases, and nobody else's.
func TestLeasesOfAnEarlierProcess(t *testing.T) {
	k := &kept{all: map[string]leases.Lease{}}
	containerd, err := client.New("", client.WithServices(client.WithLeasesService(k)))
	if err != nil {
		t.Fatal(err)
	}
	alone, beside := New(Config{Alone: true}, containerd), New(Config{}, containerd)
	_, release, err := alone.Leased(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release()
	if len(k.all) > 0 {
		t.Errorf("a released lease is left: %v", k.all)
	}
	if _, _, err := beside.Leased(t.Context()); err != nil {
		t.Fatal(err)
	}
	others := slices.Collect(maps.Keys(k.all))
	for range 3 {
		if _, _, err := alone.Leased(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(k.all) != 4 {
		t.Fatalf("the leases are %v, want four", k.all)
	}
	for id, lease := range k.all {
		if lease.Labels["containerd.io/gc.expire"] == "" {
			t.Errorf("the lease %s is for ever", id)
		}
	}
	next := New(Config{Alone: true}, containerd)
	if err := next.EndLeases(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := slices.Collect(maps.Keys(k.all)); !slices.Equal(left, others) {
		t.Errorf("left are %q, want those of others, %q", left, others)
	}
}
