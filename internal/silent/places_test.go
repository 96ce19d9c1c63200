package silent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// One server, and one tenant, have their bounds, and those whom nobody waits for yet some places
// more.
func TestPlaces(t *testing.T) {
	p := NewPlaces()
	var leaves []func()
	try := func(server, tenant string, want bool) {
		t.Helper()
		leave, all, same := p.Try(server, tenant)
		if (leave != nil) != want {
			t.Errorf("a place for %s of %s beside %d, of them %d its own: %v", server, tenant, all, same, leave != nil)
		}
		if leave != nil {
			leaves = append(leaves, leave)
		}
	}
	for range MostOfServer {
		try("one", "a", true)
	}
	for i := range (spare - 1) * MostOfServer {
		try("one", fmt.Sprint("a tenant", i), true)
		try("one", fmt.Sprint("a tenant", i), false)
	}
	try("one", "b", false)
	for _, leave := range leaves[MostOfServer:] {
		leave()
	}
	leaves = leaves[:MostOfServer]
	for i := range MostOfTenant - MostOfServer {
		try(fmt.Sprint("a", i), "a", true)
	}
	try("two", "a", false)
	for i := range MostProcesses - MostOfTenant {
		try(fmt.Sprint("b", i), fmt.Sprint("b", i%4), true)
	}
	try("two", "b0", false)
	for i := range (spare - 1) * MostProcesses {
		try(fmt.Sprint("c", i), fmt.Sprint("c", i), true)
	}
	try("two", "d", false)
	for _, leave := range leaves {
		leave()
	}
	if p.taken.all+len(p.taken.servers)+len(p.taken.tenants)+len(p.taken.both) != 0 {
		t.Errorf("%+v are taken", p.taken)
	}
}

// Who waits comes in when there is a place, before those who came later, and not behind those who
// cannot; nobody keeps a place that he does not want any more.
func TestPlacesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces()
		var leaves []func()
		for range MostOfServer {
			leave, err := p.Enter(t.Context(), "one", "a")
			if err != nil {
				t.Fatal(err)
			}
			leaves = append(leaves, leave)
		}
		in := make(chan string, 3)
		wait := func(ctx context.Context, name string) {
			go func() {
				_, err := p.Enter(ctx, "one", "a")
				if err != nil {
					name = "not " + name
				}
				in <- name
			}()
			synctest.Wait()
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		wait(ctx, "first")
		wait(t.Context(), "second")
		wait(t.Context(), "third")
		if leave, _, _ := p.Try("two", "a"); leave == nil {
			t.Error("others wait behind those for a silent server")
		}
		cancel(gone)
		if got := <-in; got != "not first" {
			t.Error(got)
		}
		for i, want := range []string{"second", "third"} {
			leaves[i]()
			if got := <-in; got != want {
				t.Errorf("%s has a place, not %s", got, want)
			}
		}
		if len(p.waiting) != 0 || p.taken.servers["one"] != MostOfServer {
			t.Errorf("%+v", p)
		}
		if _, err := p.Enter(ctx, "one", "a"); !errors.Is(err, gone) {
			t.Errorf("error %v", err)
		}
	})
}

// Tenants that wait have their turns one after the other, however many each of them has.
func TestPlacesGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces()
		leaves := map[string][]func(){}
		in := make(chan string, 10)
		enter := func(tenant string) {
			go func() {
				leave, err := p.Enter(t.Context(), "one", tenant)
				if err != nil {
					t.Error(err)
				}
				leaves[tenant] = append(leaves[tenant], leave)
				in <- tenant
			}()
			synctest.Wait()
		}
		for _, tenant := range []string{"a", "a", "a", "a", "a", "a", "a", "a", "b", "c"} {
			enter(tenant)
			if got := <-in; got != tenant {
				t.Fatalf("%s has a place, not %s", got, tenant)
			}
		}
		for _, tenant := range []string{"b", "b", "b", "c", "a"} {
			enter(tenant)
		}
		for i, want := range []string{"", "", "b", "c", "a", "b", "b"} {
			leaves["a"][i]()
			synctest.Wait()
			select {
			case got := <-in:
				if got != want {
					t.Errorf("after %d have left, %s has a place, not %s", i+1, got, want)
				}
			default:
				if want != "" {
					t.Errorf("after %d have left, %s has no place", i+1, want)
				}
			}
		}
		if len(p.waiting)+len(p.queues) != 0 {
			t.Errorf("%d queues of %d are left", len(p.waiting), len(p.queues))
		}
	})
}

// BenchmarkPlaces takes a place at one server while many wait for others.
func BenchmarkPlaces(b *testing.B) {
	for name, server := range map[string]func(i int) string{
		"one server":   func(int) string { return "silent" },
		"many servers": func(i int) string { return fmt.Sprint("silent", i%2500) },
	} {
		b.Run(name, func(b *testing.B) {
			p := NewPlaces()
			for i := range 20_000 {
				p.begin(pair{server(i), "a"})
			}
			for b.Loop() {
				leave, err := p.Enter(b.Context(), "other", "b")
				if err != nil {
					b.Fatal(err)
				}
				leave()
			}
		})
	}
}
