package volumes

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

const testGroup = 4321

func changeOwner(t *testing.T, dir string, policy v1.PodFSGroupChangePolicy) error {
	t.Helper()
	m := testManager(t.TempDir(), newStore(), nil)
	return m.changeOwner(t.Context(), testPod(), ownership{dir: dir, group: testGroup, policy: policy})
}

// The bits that the API documents are added, and no others changed; links are not followed, and
// mounts not entered.
func TestChangeOwner(t *testing.T) {
	needRoot(t)
	dir, outside := mountDir(t), t.TempDir()
	write(t, outside+"/precious", "x")
	write(t, dir+"/a/b/file", "x")
	write(t, dir+"/program", "x")
	write(t, dir+"/mounted/file", "x")
	must(t, os.Chmod(dir+"/program", 0o751|fs.ModeSetuid|fs.ModeSticky))
	must(t, os.Chmod(dir+"/a", 0o700))
	must(t, os.Symlink(outside, dir+"/a/out"))
	must(t, os.Symlink(outside+"/precious", dir+"/link"))
	must(t, unix.Mkfifo(dir+"/pipe", 0o600))
	mustMount(t, outside, dir+"/mounted", "", "bind")
	must(t, changeOwner(t, dir, v1.FSGroupChangeAlways))
	for name, want := range map[string]fs.FileMode{
		"":           fs.ModeDir | fs.ModeSetgid | 0o775,
		"/a":         fs.ModeDir | fs.ModeSetgid | 0o770,
		"/a/b":       fs.ModeDir | fs.ModeSetgid | 0o775,
		"/a/b/file":  0o664,
		"/program":   fs.ModeSetuid | fs.ModeSticky | 0o771,
		"/link":      fs.ModeSymlink | 0o777,
		"/pipe":      fs.ModeNamedPipe | 0o660,
		"/a/out":     fs.ModeSymlink | 0o777,
		"/a/b/../..": fs.ModeDir | fs.ModeSetgid | 0o775,
	} {
		if gid, mode := owner(t, dir+name); gid != testGroup || mode != want {
			t.Errorf("%q is of group %d and has mode %v, want %v", name, gid, mode, want)
		}
	}
	for _, path := range []string{outside, outside + "/precious", dir + "/mounted"} {
		if gid, _ := owner(t, path); gid == testGroup {
			t.Errorf("%s was given to the group, too", path)
		}
	}
}

func TestChangeOwnerOnRootMismatch(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	write(t, dir+"/file", "x")
	must(t, os.Chown(dir, -1, testGroup))
	must(t, os.Chmod(dir, 0o775|fs.ModeSetgid))
	must(t, changeOwner(t, dir, v1.FSGroupChangeOnRootMismatch))
	if gid, _ := owner(t, dir+"/file"); gid == testGroup {
		t.Error("the root was as it should be, and what is below was changed")
	}
	for name, spoil := range map[string]func() error{
		"group":  func() error { return os.Chown(dir, -1, 0) },
		"mode":   func() error { return os.Chmod(dir, 0o755|fs.ModeSetgid) },
		"setgid": func() error { return os.Chmod(dir, 0o775) },
	} {
		must(t, os.Chown(dir, -1, testGroup))
		must(t, os.Chmod(dir, 0o775|fs.ModeSetgid))
		must(t, os.Chown(dir+"/file", -1, 0))
		must(t, spoil())
		must(t, changeOwner(t, dir, v1.FSGroupChangeOnRootMismatch))
		if gid, _ := owner(t, dir+"/file"); gid != testGroup {
			t.Errorf("the root's %s was not as it should be, and the file's group is %d", name, gid)
		}
	}
}

// A walk that is cut off leaves the root as it was, so that OnRootMismatch walks again.
func TestChangeOwnerCutOff(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	write(t, dir+"/file", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := testManager(t.TempDir(), newStore(), nil)
	if err := m.changeOwner(ctx, testPod(), ownership{dir: dir, group: testGroup}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if gid, _ := owner(t, dir); gid == testGroup {
		t.Error("the root was changed")
	}
}

// nest makes directories d in each other, and returns the innermost.
func nest(t *testing.T, top string, levels int) (innermost int) {
	t.Helper()
	dir, err := unix.Open(top, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(dir, "d", 0o700))
		next, err := unix.Openat(dir, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		closeFD(dir)
		dir = next
	}
	return dir
}

// Directories nested deeper than files may be open are given to the group, too. Those that no path
// leads to are an error.
func TestChangeOwnerDeep(t *testing.T) {
	needRoot(t)
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	few := limit
	few.Cur = 256
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	for levels, want := range map[int]string{1000: "", 2500: "nested deeper than a path can be long"} {
		top := t.TempDir()
		innermost := nest(t, top, levels)
		err := changeOwner(t, top, v1.FSGroupChangeAlways)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d levels: error %.200v", levels, err)
		}
		var stat unix.Stat_t
		must(t, unix.Fstat(innermost, &stat))
		closeFD(innermost)
		if (stat.Gid == testGroup) != (want == "") {
			t.Errorf("%d levels: the innermost is of group %d", levels, stat.Gid)
		}
		must(t, RemoveDir(t.Context(), top))
	}
}

// A container swaps files and directories for links to the host while their owner is changed.
func TestChangeOwnerRace(t *testing.T) {
	needRoot(t)
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside+"/dir/precious", "x")
	write(t, dir+"/dir/mine", "x")
	write(t, dir+"/file", "x")
	must(t, os.Symlink(outside+"/dir", dir+"/dirlink"))
	must(t, os.Symlink(outside+"/dir/precious", dir+"/filelink"))
	stop := make(chan struct{})
	var attackers sync.WaitGroup
	for _, pair := range [][2]string{{"/dir", "/dirlink"}, {"/file", "/filelink"}, {"/dir", "/filelink"}} {
		attackers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat2(unix.AT_FDCWD, dir+pair[0], unix.AT_FDCWD, dir+pair[1], unix.RENAME_EXCHANGE)
				}
			}
		})
	}
	m := testManager(t.TempDir(), newStore(), nil)
	for i := range 3000 {
		if err := m.changeOwner(t.Context(), testPod(),
			ownership{dir: dir, group: int64(testGroup + i%2)}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	attackers.Wait()
	for path, want := range map[string]fs.FileMode{
		outside:                   fs.ModeDir | 0o755,
		outside + "/dir":          fs.ModeDir | 0o755,
		outside + "/dir/precious": 0o644,
	} {
		if gid, mode := owner(t, path); gid >= testGroup || mode != want {
			t.Errorf("%s of the host is now of group %d and has mode %v", path, gid, mode)
		}
	}
}

// A change that lasts is reported after half a minute, and then each minute.
func TestReportProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		began := time.Now()
		var reported []string
		reportProgress(ctx, reportName("/var/lib/kubelet/pods/uid-1/volumes/v", "uid-1"), func() int64 { return 42 },
			func(message string) {
				reported = append(reported, time.Since(began).String()+" "+message)
			})
		want := []string{
			"30s Setting volume ownership for uid-1/volumes/v is taking longer than expected, consider using " +
				"OnRootMismatch - ",
			"1m30s Setting volume ownership for uid-1/volumes/v, processed 42 files.",
			"2m30s Setting volume ownership for uid-1/volumes/v, processed 42 files.",
		}
		if len(reported) != len(want) {
			t.Fatalf("reported %q", reported)
		}
		for i := range want {
			if !strings.HasPrefix(reported[i], want[i]) {
				t.Errorf("reported %q, want %q", reported[i], want[i])
			}
		}
	})
}
