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
