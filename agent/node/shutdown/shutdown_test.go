package shutdown

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/configs"
)

const (
	begins   = "NodeShutdown: Shutdown manager detected shutdown event; times true false; ending for "
	complete = "ended; times true true"
	resumes  = "NodeShutdown: Shutdown manager detected shutdown cancellation; resumed"
)

// logind waits until the pods have ended, and the times of that are on record.
func TestAnnouncedShutdown(t *testing.T) {
	follows(t, nil, func(t *testing.T, m *machine, s *Manager) {
		m.expect(0, "", 1)
		began := time.Now()
		m.announce(true)
		m.expect(9*time.Second, begins+"logind", 1)
		m.expect(2*time.Second, complete, 0)
		got, err := load(s.cfg.StateFile)
		if err != nil || !got.Start.Equal(began) || !got.End.Equal(began.Add(10*time.Second)) {
			t.Errorf("%+v, %v", got, err)
		}
		if err := s.Shutdown(t.Context()); err != nil { // systemd stops the agent
			t.Error(err)
		}
		m.expect(0, "ending for systemd; "+complete, 0)
	})
}

// A machine whose logind does not answer, or does not exist, shuts down all the same.
func TestShutdownWithoutLogind(t *testing.T) {
	follows(t, func(m *machine) { m.missing = errFault }, func(t *testing.T, m *machine, s *Manager) {
		m.expect(time.Hour, "", 0)
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		m.expect(0, begins+"systemd; "+complete, 0)
	})
}

// The agent tries again until logind tells it of shutdowns.
func TestFaultsAreTriedAgain(t *testing.T) {
	for name, fault := range map[string]func(m *machine, err error){
		"no bus":              func(m *machine, err error) { m.missing = err },
		"no lock":             func(m *machine, err error) { m.refused = err },
		"unreadable":          func(m *machine, err error) { m.silent = err },
		"the connection ends": func(m *machine, err error) { m.missing = err },
	} {
		t.Run(name, func(t *testing.T) {
			before := func(m *machine) { fault(m, errFault) }
			if name == "the connection ends" {
				before = nil
			}
			follows(t, before, func(_ *testing.T, m *machine, _ *Manager) {
				if before == nil {
					m.with(func() { fault(m, errFault); m.bus.Close() })
				}
				time.Sleep(time.Hour)
				m.with(func() { fault(m, nil) })
				m.expect(time.Minute, "", 1)
				m.announce(true)
				m.expect(11*time.Second, begins+"logind; "+complete, 0)
			})
		})
	}
}

// A lock that logind keeps for a connection that has ended is replaced.
func TestOneLockAfterReconnecting(t *testing.T) {
	follows(t, nil, func(_ *testing.T, m *machine, _ *Manager) {
		for range 5 {
			m.with(func() { m.bus.Close() })
			m.expect(time.Minute, "", 1)
		}
	})
}

// The end of the pods goes on if the bus ends in the middle of it, and is not begun twice.
func TestBusEndsDuringTheShutdown(t *testing.T) {
	follows(t, nil, func(_ *testing.T, m *machine, _ *Manager) {
		m.announce(true)
		m.expect(time.Second, begins+"logind", 1)
		m.with(func() { m.bus.Close() })
		m.expect(2*time.Second, "", 1)
		m.announce(true)
		m.expect(10*time.Second, complete, 0)
	})
}

// What logind announced while nobody listened is made up for.
func TestMissedAnnouncements(t *testing.T) {
	follows(t, nil, func(_ *testing.T, m *machine, _ *Manager) {
		m.with(func() { m.preparing = true; m.bus.Close() })
		m.expect(2*time.Second, begins+"logind", 1)
		m.with(func() { m.preparing = false; m.bus.Close() })
		m.expect(2*time.Second, "cut off; "+resumes, 1)
	})
}

func TestAnnouncedTwice(t *testing.T) {
	follows(t, nil, func(_ *testing.T, m *machine, _ *Manager) {
		m.announce(true)
		m.announce(true)
		m.expect(9*time.Second, begins+"logind", 1)
		m.announce(true)
		m.expect(2*time.Second, complete, 0)
		m.announce(true)
		m.expect(time.Minute, "", 0)
	})
}

// A cancelled shutdown lets the pods run again, also after they have ended, and the next one is
// announced as the first.
func TestCancelled(t *testing.T) {
	follows(t, nil, func(_ *testing.T, m *machine, _ *Manager) {
		m.announce(true)
		m.expect(time.Second, begins+"logind", 1)
		m.announce(false)
		m.expect(time.Second, "cut off; "+resumes, 1)
		m.announce(true)
		m.expect(20*time.Second, begins+"logind; "+complete, 0)
		m.announce(false)
		m.expect(time.Second, resumes, 1)
		m.announce(false)
		m.expect(time.Second, "", 1)
		m.announce(true)
		m.announce(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if said := m.heard(); said != "" && !strings.HasSuffix(said, resumes) {
			m.t.Errorf("at once: %q", said)
		}
		m.expect(0, "", 1)
	})
}

// The lock that a cancellation cannot take is no reason not to run the pods again.
func TestCancelledWithoutLock(t *testing.T) {
	follows(t, nil, func(_ *testing.T, m *machine, _ *Manager) {
		m.announce(true)
		time.Sleep(time.Second)
		m.with(func() { m.refused = errFault })
		m.announce(false)
		m.expect(time.Second, begins+"logind; cut off; "+resumes, 0)
	})
}

// systemd that stops the agent waits for what logind's announcement began, and nothing undoes it.
func TestStoppedInTheMiddle(t *testing.T) {
	follows(t, nil, func(t *testing.T, m *machine, s *Manager) {
		m.announce(true)
		time.Sleep(time.Second)
		stopped := make(chan error, 1)
		go func() { stopped <- s.Shutdown(t.Context()) }()
		m.expect(5*time.Second, begins+"logind", 1)
		m.expect(10*time.Second, complete+"; ending for systemd", 0)
		m.announce(false)
		m.expect(10*time.Second, complete, 1)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func TestDelay(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*machine)
		most   time.Duration
		wrote  bool
	}{
		"long enough":              {func(*machine) {}, time.Minute, false},
		"too short":                {func(m *machine) { m.most = 5 * time.Second }, 30 * time.Second, true},
		"too short, and it stays":  {func(m *machine) { m.most, m.deaf = time.Second, errFault }, time.Second, true},
		"its file is not writable": {func(m *machine) { m.most, m.conf = time.Second, "/dev/null/x/y" }, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			follows(t, c.before, func(t *testing.T, m *machine, _ *Manager) {
				m.expect(time.Minute, "", 1) // some delay is better than none
				if m.most != c.most {
					t.Errorf("logind waits %s, want %s", m.most, c.most)
				}
				text, err := os.ReadFile(m.conf)
				if wrote := err == nil; wrote != c.wrote || wrote &&
					!strings.HasSuffix(string(text), "\n[Login]\nInhibitDelayMaxSec=30\n") {
					t.Errorf("%s: %q, %v", m.conf, text, err)
				}
			})
		})
	}
}

// The next agent knows when the last shutdown was. A file that cannot be read or written hinders
// no shutdown.
func TestTimesOutliveTheAgent(t *testing.T) {
	m := &machine{t: t}
	file := filepath.Join(t.TempDir(), StateFile)
	run := func(file string) string {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{StateFile: file}, Deps{
				Pods: m, Event: m.event, Metrics: m, Logger: slog.New(slog.DiscardHandler),
			})
			done := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { done <- s.Run(ctx) }()
			synctest.Wait()
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			cancel()
			<-done
		})
		return m.heard()
	}
	first := begins + "systemd; " + complete
	if got := run(file); got != first {
		t.Errorf("the first: %q", got)
	}
	if got := run(file); got != "times true true; "+first {
		t.Errorf("the next: %q", got)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(file); got != first {
		t.Errorf("with a file that is not readable: %q", got)
	}
	if got := run("/dev/null/state"); got != first {
		t.Errorf("with a file that cannot be made: %q", got)
	}
}

func TestConfigFrom(t *testing.T) {
	seconds := func(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }
	byPriority := []kubeletconfigv1beta1.ShutdownGracePeriodByPodPriority{
		{Priority: 0, ShutdownGracePeriodSeconds: 20}, {Priority: 10, ShutdownGracePeriodSeconds: 5},
	}
	for name, c := range map[string]struct {
		kubelet kubeletconfigv1beta1.KubeletConfiguration
		want    time.Duration
	}{
		"nothing": {},
		"a period": {kubeletconfigv1beta1.KubeletConfiguration{
			ShutdownGracePeriod: seconds(30), ShutdownGracePeriodCriticalPods: seconds(10),
		}, 30 * time.Second},
		"by priority": {kubeletconfigv1beta1.KubeletConfiguration{
			ShutdownGracePeriodByPodPriority: byPriority,
		}, 25 * time.Second},
		"switched off": {kubeletconfigv1beta1.KubeletConfiguration{
			ShutdownGracePeriod: seconds(30), FeatureGates: map[string]bool{"GracefulNodeShutdown": false},
		}, 0},
	} {
		cfg := &configs.Config{Kubelet: c.kubelet}
		cfg.RootDir = "/r"
		got := ConfigFrom(cfg)
		if got.Delay != c.want || got.StateFile != "/r/graceful_node_shutdown_state" ||
			got.LogindConf != "/etc/systemd/logind.conf.d/99-kubelet.conf" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
