package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/silent"
	"github.com/berthd/berth/test/env"
)

// nfsVolume is an inline NFS volume.
func nfsVolume(server, path string, readOnly bool) v1.Volume {
	return v1.Volume{
		Name:         "v",
		VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: server, Path: path, ReadOnly: readOnly}},
	}
}

// helper puts a program in the place of mount.nfs.
func helper(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if script != "" {
		must(t, os.WriteFile(filepath.Join(dir, "mount.nfs"), []byte("#!/bin/sh\n"+script), 0o755))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

func TestNFS(t *testing.T) {
	needRoot(t)
	dir := helper(t, `echo "$@" >"$(dirname "$0")/args"; exec mount -t tmpfs none "$2"`)
	for _, test := range []struct {
		volume v1.Volume
		pv     *v1.PersistentVolume
		path   string
		args   string
	}{
		{nfsVolume("server", "/export", false), nil, "v", "server:/export DIR"},
		{nfsVolume("fd00::1", "/export", true), nil, "v", "[fd00::1]:/export DIR -o ro"},
		{claimVolume("v", "c"), nfsPV("pv-1", "nfsvers=4.2", "hard"), "pv-1", "server:/export DIR -o nfsvers=4.2,hard"},
	} {
		m := testManager(mountDir(t), newStore(), nil)
		m.deps.Claims = boundTo{"c": test.pv}
		pod := testPod(test.volume)
		must(t, m.EnsureDirs(t.Context(), pod))
		target := m.PodDir(pod.UID) + "/volumes/kubernetes.io~nfs/" + test.path
		for range 2 {
			mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
			must(t, err)
			if want := (Mount{HostPath: target, ReadOnly: strings.Contains(test.args, "ro")}); mounts["v"] != want {
				t.Errorf("mount is %+v, want %+v", mounts["v"], want)
			}
		}
		if got, want := read(t, dir, "args"), strings.Replace(test.args, "DIR", target, 1)+"\n"; got != want {
			t.Errorf("the helper was called with %q, want %q", got, want)
		}
		must(t, os.Remove(dir+"/args"))
		must(t, m.Remove(t.Context(), pod.UID))
	}
}

// nfsPV is a PersistentVolume with the first option in its spec, and all of them in its annotation.
func nfsPV(name string, options ...string) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{}
	pv.Name = name
	pv.Annotations = map[string]string{annotationMountOptions: strings.Join(options, ", ")}
	pv.Spec.NFS = &v1.NFSVolumeSource{Server: "server", Path: "/export"}
	pv.Spec.MountOptions = options[:1]
	return pv
}

func TestNFSErrors(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{
			"fails", "echo 'mount.nfs: access denied by server' >&2; exit 32",
			`mount failed: exit status 32, mounting server:/export, output: mount.nfs: access denied by server`,
		},
		{
			"talks", "yes nonsense | head -c 100000; exit 1",
			`mount failed: exit status 1, mounting server:/export, output: nonsense`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			helper(t, test.script)
			m := testManager(t.TempDir(), newStore(), nil)
			pod := testPod(nfsVolume("server", "/export", false))
			must(t, m.EnsureDirs(t.Context(), pod))
			_, err := m.Ensure(t.Context(), pod, Dynamic{})
			if err == nil || !strings.HasPrefix(err.Error(), `MountVolume.SetUp failed for volume "v" : `+test.want) ||
				len(err.Error()) > 1000 {
				t.Errorf("error %v", err)
			}
			must(t, m.Remove(t.Context(), pod.UID))
		})
	}
}

// A node without the helper says what to install.
func TestNFSWithoutHelper(t *testing.T) {
	if _, err := findHelper(nfsHelper); err == nil {
		t.Skip("this host has the helper")
	}
	m := testManager(t.TempDir(), newStore(), nil)
	pod := testPod(nfsVolume("server", "/export", false))
	must(t, m.EnsureDirs(t.Context(), pod))
	_, err := m.Ensure(t.Context(), pod, Dynamic{})
	if err == nil ||
		!strings.Contains(err.Error(), "nfs volumes need the helper program mount.nfs, which is not on this node") {
		t.Errorf("error %v", err)
	}
}

// A server that does not answer holds nobody up: the helper is ended with its task.
func TestNFSHangs(t *testing.T) {
	dir := helper(t, `echo started >"$(dirname "$0")/started"; exec sleep 1000`)
	must(t, unix.Mkfifo(dir+"/started", 0o600))
	m := testManager(t.TempDir(), newStore(), nil)
	pod := testPod(nfsVolume("server", "/export", false))
	must(t, m.EnsureDirs(t.Context(), pod))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	slow := func(_ string, do func(context.Context) error) (bool, error) {
		go func() { done <- do(ctx) }()
		return false, nil
	}
	if _, err := m.Ensure(t.Context(), pod, Dynamic{Slow: slow}); !errors.Is(err, ErrUnderWay) {
		t.Errorf("error %v", err)
	}
	read(t, dir, "started") // a pipe: this waits for the helper
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the task ended with %v", err)
	}
	must(t, m.Remove(t.Context(), pod.UID))
}

// Many volumes of a server that does not answer start no more helpers than have places, and those
// that wait have nothing open. Pods of other namespaces, and other servers, find places.
func TestNFSHelpersAreBounded(t *testing.T) {
	dir := helper(t, `echo "$1" >>"$(dirname "$0")/started"; [ "$1" = other:/x ] || exec sleep 1000`)
	m := testManager(t.TempDir(), newStore(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tasks, ended := 0, make(chan error, 100)
	ensure := func(uid types.UID, namespace string, servers ...string) (opened func() int) {
		var volumes []v1.Volume
		for i, server := range servers {
			volumes = append(volumes, nfsVolume(server, "/x", false))
			volumes[i].Name = "v" + strconv.Itoa(i)
		}
		pod := testPod(volumes...)
		pod.UID, pod.Namespace = uid, namespace
		must(t, m.EnsureDirs(t.Context(), pod))
		slow := func(_ string, do func(context.Context) error) (bool, error) {
			tasks++
			go func() { ended <- do(ctx) }()
			return false, nil
		}
		if _, err := m.Ensure(t.Context(), pod, Dynamic{Slow: slow}); !errors.Is(err, ErrUnderWay) {
			t.Errorf("error %v", err)
		}
		return func() int { return openHandles(t, m.PodDir(uid)) }
	}
	started := func(what string, n int) {
		t.Helper()
		env.Eventually(t, fmt.Sprintf("%d helpers for %s to start", n, what), func() error {
			b, _ := os.ReadFile(dir + "/started")
			if got := strings.Count(strings.ToLower(string(b)), what+"\n"); got != n {
				return fmt.Errorf("%d have started", got)
			}
			return nil
		})
	}
	const silents = silent.MostOfServer
	opened := ensure("u1", "one", slices.Repeat([]string{"server", "SERVER", "Server"}, silents)...)
	started("server:/x", silents)
	ensure("u2", "two", "server", "server")
	started("server:/x", silents+1)
	ensure("u3", "one", "other")
	started("other:/x", 1)
	if n := opened(); n > silents {
		t.Errorf("%d handles of the pod are open, for %d helpers", n, silents)
	}
	cancel()
	for range tasks {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "mount") {
			t.Errorf("a task ended with %v", err)
		}
	}
	started("server:/x", silents+1)
	for _, uid := range []types.UID{"u1", "u2", "u3"} {
		must(t, m.Remove(t.Context(), uid))
	}
}

// openHandles counts the files that this process has open at dir.
func openHandles(t *testing.T, dir string) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); to == dir {
			n++
		}
	}
	return n
}

func TestGroupOfVolume(t *testing.T) {
	for annotation, want := range map[string]int64{"777": 777, "": 0, "x": 0, "-5": 0, "99999999999": 0} {
		pv := &v1.PersistentVolume{}
		pv.Name, pv.Annotations = "pv", map[string]string{annotationGID: annotation}
		pv.Spec.HostPath = &v1.HostPathVolumeSource{Path: "/"}
		m := testManager(t.TempDir(), newStore(), nil)
		m.deps.Claims = boundTo{"c": pv}
		pod := testPod(claimVolume("v", "c"))
		must(t, m.EnsureDirs(t.Context(), pod))
		mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
		if got := mounts["v"].Group; got != want {
			t.Errorf("group %q is %d, want %d", annotation, got, want)
		}
	}
}

// hanging detaches what it unmounts, and then waits for the server, as the kernel does with the
// last mount of an NFS export.
func hanging(answer chan error) func(server, step, target string) error {
	return func(_, step, target string) error {
		if step != string(apartUnmount) {
			return apartStep(step).do(target)
		}
		if err := apartDetach.do(target); err != nil {
			return err
		}
		return <-answer
	}
}

// An unmount whose server is silent ends when the mount is out of the tree, whatever the kernel
// still waits for. When the wait ends, what is mounted in the same place by then stays.
func TestUnmountOfASilentServer(t *testing.T) {
	needRoot(t)
	target := mountDir(t)
	mustMount(t, "none", target, "tmpfs")
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan error)
		m := testManager(t.TempDir(), newStore(), nil)
		m.deps.Apart = hanging(answer)
		begun := time.Now()
		must(t, m.unmountRemote("server", target))
		if took := time.Since(begun); took != unmountTimeout {
			t.Errorf("the unmount took %v, want %v", took, unmountTimeout)
		}
		if mounted, err := inMountTable(target); mounted || err != nil {
			t.Errorf("still mounted: %v, %v", mounted, err)
		}
		mustMount(t, "none", target, "tmpfs")
		answer <- unix.EIO
		synctest.Wait()
		if mounted, err := inMountTable(target); !mounted || err != nil {
			t.Errorf("what was mounted since is mounted: %v, %v", mounted, err)
		}
	})
}

// Only what waits for a silent server is given up, and only as long as that is silent and its
// export is mounted nowhere else. The mount stays where it is.
func TestGiveUp(t *testing.T) {
	needRoot(t)
	target := mountDir(t)
	mustMount(t, "none", target, "tmpfs")
	for name, test := range map[string]struct {
		answersAt time.Duration // 0 for never
		elsewhere time.Duration // when the export is mounted elsewhere, too; 0 for never
		want      int
	}{
		"silent":              {0, 0, aborts},
		"answers at once":     {time.Millisecond, 0, 0},
		"answers late":        {SilentFor - time.Millisecond, 0, 0},
		"answers meanwhile":   {SilentFor + 2*abortEvery - time.Millisecond, 0, 2},
		"elsewhere meanwhile": {0, SilentFor + 2*abortEvery - time.Millisecond, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun, forced, asking := time.Now(), 0, atomic.Int32{}
			var abort atomic.Pointer[chan struct{}]
			abort.Store(new(make(chan struct{})))
			a := aborter{
				targets: func() ([]string, error) {
					if test.elsewhere > 0 && time.Since(begun) >= test.elsewhere {
						return nil, nil
					}
					return []string{target}, nil
				},
				ask: func(int) error {
					asking.Add(1)
					defer asking.Add(-1)
					var answer <-chan time.Time
					aborted := *abort.Load()
					if test.answersAt > 0 {
						answer = time.After(max(0, test.answersAt-time.Since(begun)))
					}
					select {
					case <-answer:
						return nil
					case <-aborted:
						return unix.EIO
					}
				},
				force: func(target string) error {
					forced++
					close(*abort.Swap(new(make(chan struct{}))))
					return unix.Unmount(target, unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW)
				},
				log: slog.New(slog.DiscardHandler),
			}
			must(t, a.run(t.Context()))
			if forced != test.want {
				t.Errorf("%s: forced %d times, want %d", name, forced, test.want)
			}
			if took := time.Since(begun); test.want == 0 && took != test.answersAt {
				t.Errorf("%s: took %v, want %v", name, took, test.answersAt)
			}
			synctest.Wait()
			if n := asking.Load(); n > 0 && test.elsewhere == 0 {
				t.Errorf("%s: %d questions are left behind", name, n)
			}
			close(*abort.Load())
		})
	}
	if mounted, err := inMountTable(target); !mounted || err != nil {
		t.Errorf("still mounted: %v, %v", mounted, err)
	}
	m := testManager(t.TempDir(), newStore(), KernelMounter{})
	pod := testPod()
	must(t, m.EnsureDirs(t.Context(), pod))
	must(t, m.GiveUp(t.Context(), pod.UID))
}

// What a pod has written is given up only where no other pod and nobody else uses the same export.
func TestSoleNFS(t *testing.T) {
	all := []*mountinfo.Info{
		{Mountpoint: "/", Major: 8, FSType: "ext4"},
		{Mountpoint: "/pods/a", Minor: 9, FSType: "nfs4"},
		{Mountpoint: "/pods/a/alone", Minor: 1, FSType: "nfs4"},
		{Mountpoint: "/pods/a/part", Minor: 1, FSType: "nfs4"},
		{Mountpoint: "/pods/a/part/nested", Minor: 6, FSType: "nfs4"},
		{Mountpoint: "/pods/a/old", Minor: 2, FSType: "nfs"},
		{Mountpoint: "/pods/a/shared", Minor: 3, FSType: "nfs4"},
		{Mountpoint: "/pods/a/tmp", Minor: 4, FSType: "tmpfs"},
		{Mountpoint: "/pods/a/covered", Minor: 7, FSType: "nfs4"},
		{Mountpoint: "/pods/a/covered", Minor: 8, FSType: "nfs4"},
		{Mountpoint: "/pods/ab/shared", Minor: 3, FSType: "nfs4"},
		{Mountpoint: "/pods/ab/alone", Minor: 5, FSType: "nfs4"},
	}
	want := []string{"/pods/a/alone", "/pods/a/old"}
	if got := soleNFS(all, "/pods/a"); !slices.Equal(got, want) {
		t.Errorf("sole are %q, want %q", got, want)
	}
}
