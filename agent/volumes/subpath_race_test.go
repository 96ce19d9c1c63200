package volumes

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// raceMounts is how many subPaths are mounted while they are attacked.
const raceMounts = 10_000

// attackVariable is set in a process that is the attacker; its value is the volume.
const attackVariable = "BERTH_ATTACK_VOLUME"

// Another process, with the rights of a container, swaps what subPaths lead to for links to the
// host, for directories moved about, and for nothing, without a pause, while 10,000 subPaths are
// mounted (CVE-2017-1002101, CVE-2021-25741). No file of the host is ever mounted, and none is
// made.
func TestSubPathRace(t *testing.T) {
	needRoot(t)
	m, volume := subPathFixture(t, nil)
	outside := filepath.Join(filepath.Dir(volume), "outside")
	for _, dir := range []string{"", "/sub", "/deep/sub"} {
		write(t, outside+dir+"/secret", "of the host")
	}
	before := len(inodes(t, outside))
	hosts := inodes(t, outside, "/", "/etc", "/etc/passwd", "/proc", filepath.Dir(volume))
	prepareAttack(t, volume)
	stop := startAttack(t, volume)
	paths := []string{
		"good/sub", "good/new/dir", "mid/good/sub", "mid/good/made", "link/sub", "link/fresh", "file",
		"moving/deep/sub", "moving/deep/x/y", "good/sub/secret",
	}
	mounted, refused := 0, 0
	for i := 0; mounted < raceMounts; i++ {
		s := SubPathMount{
			Container:  "main",
			Index:      i % len(paths),
			Volume:     "v",
			VolumePath: volume,
			Path:       paths[i%len(paths)],
		}
		target, err := m.SubPath(t.Context(), "uid-1", s)
		if err != nil {
			refused++
			continue
		}
		mounted++
		if what, bad := hosts[inodeOf(t, target)]; bad {
			t.Errorf("the container got %s of the host for subPath %s", what, s.Path)
			break
		}
		must(t, m.unmount(target))
		if i%64 == 0 {
			tidy(volume)
		}
	}
	swaps := stop()
	t.Logf("%d mounts made and %d refused during %d swaps", mounted, refused, swaps)
	if refused == 0 || swaps < raceMounts {
		t.Errorf("that was no race: %d mounts refused during %d swaps", refused, swaps)
	}
	if after := inodes(t, outside); len(after) != before {
		t.Errorf("something was made on the host: %v", after)
	}
	must(t, m.Remove(t.Context(), "uid-1"))
	for _, file := range []string{"secret", "sub/secret", "deep/sub/secret"} {
		if got := read(t, outside, file); got != "of the host" {
			t.Errorf("%s of the host = %q", file, got)
		}
	}
}

// inode is a file's identity.
type inode struct{ dev, ino uint64 }

func inodeOf(t *testing.T, path string) inode {
	t.Helper()
	var stat unix.Stat_t
	must(t, unix.Lstat(path, &stat))
	return inode{stat.Dev, stat.Ino}
}

// inodes names every file below the first path, and the others themselves.
func inodes(t *testing.T, tree string, others ...string) map[inode]string {
	t.Helper()
	found := map[inode]string{}
	must(t, filepath.WalkDir(tree, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			found[inodeOf(t, path)] = path
		}
		return err
	}))
	for _, path := range others {
		found[inodeOf(t, path)] = path
	}
	return found
}

// attack is one thread of the attacker: what it prepares, and what it does over and over.
type attack struct {
	prepare func() error
	swap    func()
}

// attacks are the ways in which a container may try to lead a subPath out of its volume, to the
// directory beside it.
func attacks(volume string) []attack {
	in := func(name string) string { return filepath.Join(volume, name) }
	outside := filepath.Join(filepath.Dir(volume), "outside")
	link := func(target, name string) func() error {
		return func() error { return os.Symlink(target, in(name)) }
	}
	exchange := func(a, b string) func() {
		return func() { _ = unix.Renameat2(unix.AT_FDCWD, in(a), unix.AT_FDCWD, in(b), unix.RENAME_EXCHANGE) }
	}
	turn := 0
	relink := func(targets ...string) func() {
		return func() {
			_ = os.Symlink(targets[turn%len(targets)], in("link.next"))
			_ = os.Rename(in("link.next"), in("link"))
			turn++
		}
	}
	none := func() error { return nil }
	return []attack{
		// a directory for an absolute link
		{link(outside, "evil"), exchange("good", "evil")},
		// one below for a relative link
		{link("../../outside", "mid/evil"), exchange("mid/good", "mid/evil")},
		// for the host's root
		{link("/proc/self/root", "magic"), exchange("good", "magic")},
		{link(outside+"/secret", "fileevil"), exchange("file", "fileevil")}, // a file for a link
		// a link for other links
		{none, relink("good", outside, "../outside", "mid/good")},
		// directories for each other, so that ".." leads elsewhere
		{none, exchange("moving/deep", "mid/good")},
		{none, func() { // nothing for a link, just before a directory would be made
			_ = os.Remove(in("good/new/dir"))
			_ = os.Remove(in("good/new"))
			_ = os.Symlink(outside, in("good/new"))
			_ = os.Remove(in("good/new"))
		}},
	}
}

// prepareAttack fills the volume.
func prepareAttack(t *testing.T, volume string) {
	t.Helper()
	for _, dir := range []string{"good/sub", "mid/good/sub", "moving/deep/sub"} {
		must(t, os.MkdirAll(filepath.Join(volume, dir), 0o777))
	}
	write(t, volume+"/file", "of the container")
	must(t, os.Symlink("good", volume+"/link"))
	must(t, filepath.WalkDir(volume, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type() != fs.ModeSymlink {
			err = os.Chmod(path, 0o777)
		}
		return err
	}))
}

// tidy removes what the mounts made, so that it is made again.
func tidy(volume string) {
	for _, top := range []string{"good", "evil", "magic", "mid/good", "mid/evil", "moving/deep"} {
		if info, err := os.Lstat(filepath.Join(volume, top)); err != nil || !info.IsDir() {
			continue
		}
		root, err := os.OpenRoot(volume)
		if err != nil {
			continue
		}
		for _, made := range []string{"/new/dir", "/new", "/made", "/fresh", "/x/y", "/x", "/sub/secret"} {
			_ = root.Remove(top + made)
		}
		_ = root.Close()
	}
}

// startAttack starts the attacker, a process of another user, and returns what ends it and counts
// its swaps.
func startAttack(t *testing.T, volume string) (stop func() int) {
	t.Helper()
	for dir := volume; dir != "/"; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode()&0o001 == 0 {
			must(t, os.Chmod(dir, info.Mode()|0o711))
		}
	}
	// By the link in /proc, since the directory that the program lies in may keep others out.
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", "-test.run", "^TestSubPathAttacker$")
	cmd.Env = append(os.Environ(), attackVariable+"="+volume)
	// It ends with its input. No Pdeathsig: the thread that starts it may end before the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = volume
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var ready [1]byte
	if _, err := io.ReadFull(out, ready[:]); err != nil {
		t.Fatalf("the attacker does not attack: %v", err)
	}
	return func() int {
		must(t, in.Close())
		count, err := io.ReadAll(out)
		must(t, err)
		_ = cmd.Wait()
		var swaps int
		_, err = fmt.Sscan(string(count), &swaps)
		must(t, err)
		return swaps
	}
}

// TestSubPathAttacker is the attacker of [TestSubPathRace], in a process of its own; it is nothing
// when run by itself.
func TestSubPathAttacker(t *testing.T) {
	volume := os.Getenv(attackVariable)
	if volume == "" {
		t.Skip("started by TestSubPathRace")
	}
	end := make(chan struct{})
	all := attacks(volume)
	counts := make([]int, len(all))
	var threads sync.WaitGroup
	for i, a := range all {
		must(t, a.prepare())
		threads.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					a.swap()
					counts[i]++
				}
			}
		})
	}
	os.Stdout.WriteString("!")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test has enough
	close(end)
	threads.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	os.Stdout.WriteString(strconv.Itoa(total) + "\n")
}
