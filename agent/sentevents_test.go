package agent

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	apifake "github.com/berthd/berth/agent/cluster/kube/fake"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
)

// eventsOf returns the events with a reason, as "kind/name type message".
func eventsOf(a *Agent, reason string) []string {
	var out []string
	for _, e := range a.Events() {
		if e.Reason == reason {
			out = append(out, e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name+" "+e.Type+" "+e.Message)
		}
	}
	return out
}

// A node whose resolver configuration has more search domains than pods can get says so when its
// agent starts.
func TestSearchDomainsAreWarnedOfAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		resolv := filepath.Join(dir, "resolv.conf")
		for searches, want := range map[int][]string{
			32: nil,
			33: {"Node/node Warning Resolv.conf file '" + resolv +
				"' contains search line consisting of more than 32 domains!"},
		} {
			line := "search" + strings.Repeat(" a.example", searches) + "\n"
			if err := os.WriteFile(resolv, []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			a, end := liveWith(t, dir, fake.New(fake.Config{}), manifest(""), Deps{}, func(cfg *configs.Config) {
				cfg.Kubelet.ResolverConfig = ptr.To(resolv)
				cfg.Kubelet.ClusterDomain = ""
			})
			time.Sleep(time.Second)
			if got := eventsOf(a, "CheckLimitsForResolvConf"); !slices.Equal(got, want) {
				t.Errorf("with %d search domains: %q, want %q", searches, got, want)
			}
			end()
		}
	})
}

// A node of a cluster whose address is of another family than before warns of that with each pod
// that runs.
func TestAddressOfAnotherFamilyIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &joined{
			t: t, dir: t.TempDir(), rt: fake.New(fake.Config{WriteLogs: true}), api: apifake.New(), from: manifest(""),
		}
		defer j.api.Close()
		at := func(address string) {
			j.options = func(cfg *configs.Config) { cfg.NodeIPs = []netip.Addr{netip.MustParseAddr(address)} }
			j.start()
			time.Sleep(time.Minute)
			j.wantRuns(address, "a Running")
		}
		j.bind("a")
		at("192.0.2.1")
		if got := eventsOf(j.Agent, "HostIPsIPFamilyMismatch"); len(got) > 0 {
			t.Errorf("at first: %q", got)
		}
		j.end()
		at("2001:db8::1")
		defer func() { j.end() }()
		want := []string{"Pod/a Warning Kubelet detected an IPv4 node IP (192.0.2.1), but the cloud provider selected an " +
			"IPv6 node IP (2001:db8::1); pass an explicit `--node-ip` to kubelet to fix this."}
		if got := eventsOf(j.Agent, "HostIPsIPFamilyMismatch"); !slices.Equal(got, want) {
			t.Errorf("with another address: %q, want %q", got, want)
		}
	})
}

// rootless is a machine on which the node's cgroups cannot be made.
type rootless struct{ noCgroups }

func (rootless) Setup(context.Context) error { return errors.New("read-only file system") }

// An agent that cannot set up its node ends, and its last event says why.
func TestFailedSetupIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, end := liveWith(t, t.TempDir(), fake.New(fake.Config{}), manifest(""), Deps{Cgroups: rootless{}}, nil)
		end()
		want := []string{"Node/node Warning setting up the node's cgroups: read-only file system"}
		if got := eventsOf(a, "KubeletSetupFailed"); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if last := a.Events()[len(a.Events())-1]; last.Type != v1.EventTypeWarning || last.Reason != "KubeletSetupFailed" {
			t.Errorf("the last event is %s", last.Reason)
		}
	})
}
