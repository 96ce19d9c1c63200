package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// Each type of hostPath against each kind of file: the message after "MountVolume.SetUp failed for
// volume …", empty where it is up.
func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/dir", 0o700))
	must(t, os.WriteFile(dir+"/file", nil, 0o600))
	must(t, os.Symlink("dir", dir+"/dirlink"))
	must(t, os.Symlink("file", dir+"/filelink"))
	must(t, os.Symlink("nowhere", dir+"/dangling"))
	must(t, unix.Mkfifo(dir+"/pipe", 0o600))
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	must(t, err)
	defer socket.Close()
	block := ""
	if os.Geteuid() == 0 && unix.Mknod(dir+"/block", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))) == nil {
		block = dir + "/block"
	}
	files := map[string]string{
		"dir":           dir + "/dir",
		"file":          dir + "/file",
		"link to dir":   dir + "/dirlink",
		"link to file":  dir + "/filelink",
		"dangling link": dir + "/dangling",
		"nothing":       dir + "/nothing",
		"pipe":          dir + "/pipe",
		"socket":        dir + "/socket",
		"char":          "/dev/null",
		"block":         block,
		"below a file":  dir + "/file/x",
	}
	is := map[v1.HostPathType][]string{
		v1.HostPathDirectory: {"dir", "link to dir"},
		v1.HostPathFile:      {"file", "link to file"},
		v1.HostPathSocket:    {"socket"},
		v1.HostPathCharDev:   {"char"},
		v1.HostPathBlockDev:  {"block"},
		v1.HostPathUnset: {
			"dir", "file", "link to dir", "link to file", "dangling link", "nothing", "pipe", "socket", "char", "block",
			"below a file",
		},
	}
	called := map[v1.HostPathType]string{
		v1.HostPathDirectory: "a directory", v1.HostPathFile: "a file", v1.HostPathSocket: "a socket file",
		v1.HostPathCharDev: "a character device", v1.HostPathBlockDev: "a block device",
	}
	for kind, good := range is {
		for name, path := range files {
			want := fmt.Sprintf("hostPath type check failed: %s is not %s", path, called[kind])
			if slices.Contains(good, name) {
				want = ""
			}
			if path == "" {
				continue
			}
			if got := errorText(checkHostPath(t.Context(), &v1.HostPathVolumeSource{Path: path, Type: &kind})); got != want {
				t.Errorf("%s as %q: %q, want %q", name, kind, got, want)
			}
		}
	}
	other := v1.HostPathType("Tape")
	err = checkHostPath(t.Context(), &v1.HostPathVolumeSource{Path: dir, Type: &other})
	if !errors.Is(err, ErrUnsupported) || err.Error() != "Tape is an invalid volume type" {
		t.Error(err)
	}
	if got := errorText(checkHostPath(t.Context(), &v1.HostPathVolumeSource{Path: dir +
		"/../x"})); got != fmt.Sprintf("invalid HostPath `%s/../x`: must not contain '..'", dir) {
		t.Error(got)
	}
}

// What is not there is made with the API's modes; what is there is not changed, and must be of the
// kind.
func TestHostPathOrCreate(t *testing.T) {
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/dir", 0o700))
	must(t, os.WriteFile(dir+"/file", []byte("x"), 0o600))
	for _, test := range []struct {
		path string
		kind v1.HostPathType
		want string
		mode fs.FileMode
	}{
		{"/dir", v1.HostPathDirectoryOrCreate, "", fs.ModeDir | 0o700},
		{"/new/deep", v1.HostPathDirectoryOrCreate, "", fs.ModeDir | 0o755},
		{"/file", v1.HostPathDirectoryOrCreate, "hostPath type check failed: DIR/file is not a directory", 0o600},
		{"/file", v1.HostPathFileOrCreate, "", 0o600},
		{"/made", v1.HostPathFileOrCreate, "", 0o644},
		{"/dir", v1.HostPathFileOrCreate, "hostPath type check failed: DIR/dir is not a file", fs.ModeDir | 0o700},
		{"/absent/file", v1.HostPathFileOrCreate, "open DIR/absent/file: no such file or directory", 0},
	} {
		for range 2 {
			got := errorText(checkHostPath(t.Context(), &v1.HostPathVolumeSource{Path: dir + test.path, Type: &test.kind}))
			if want := strings.ReplaceAll(test.want, "DIR", dir); got != want {
				t.Errorf("%s %s: %q, want %q", test.kind, test.path, got, want)
			}
		}
		if info, err := os.Stat(dir + test.path); test.mode != 0 && (err != nil || info.Mode() != test.mode) {
			t.Errorf("%s %s: %v, want %v (%v)", test.kind, test.path, info.Mode(), test.mode, err)
		}
	}
	if read(t, dir, "file") != "x" {
		t.Error("an existing file was emptied")
	}
}
