package images

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// e2eRegistry is where upstream's tests look for their images.
const e2eRegistry = "registry.k8s.io/e2e-test-images/"

// netcat is Debian's netcat-openbsd. Busybox' has no UDP.
const netcat = "/usr/bin/nc.openbsd"

// Upstream writes archives of images that stand in for those of Kubernetes' own end-to-end tests (test/utils/image in its source) into dir, and returns their paths: upstream's
// programs, which "scripts/deps conformance" has built in the checkout at root, on the host's busybox.
func Upstream(ctx context.Context, root, dir string) ([]string, error) {
	bin := filepath.Join(root, ".cache", "bin", "conformance")
	built := map[string][]byte{}
	for _, name := range []string{"agnhost", "localhost.crt", "localhost.key", "nonewprivs"} {
		text, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return nil, fmt.Errorf("read upstream's programs (run \"scripts/deps conformance\"): %w", err)
		}
		built[name] = text
	}
	base, err := busyboxImage(ctx, root)
	if err != nil {
		return nil, err
	}
	// Upstream's busybox has all its applets in /bin.
	for _, f := range base.Files {
		if f.Link == busyboxPath && path.Dir(f.Path) != "/bin" {
			base.Files = append(base.Files, File{Path: path.Join("/bin", path.Base(f.Path)), Link: busyboxPath})
		}
	}
	pause, err := pauseImage(ctx, root)
	if err != nil {
		return nil, err
	}
	with := func(name string, config ocispec.ImageConfig, files ...File) Image {
		config.Env = base.Config.Env
		all := map[string]File{} // of two at one place, the later one
		for _, f := range slices.Concat(base.Files, files) {
			all[f.Path] = f
		}
		return Image{Name: name, Config: config, Files: slices.Collect(maps.Values(all))}
	}
	account := []File{
		{Path: "/etc/passwd", Mode: 0o644, Body: []byte("root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n")},
		{Path: "/etc/group", Mode: 0o644, Body: []byte("root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")},
		{Path: "/agnhost", Mode: 0o755, Body: built["agnhost"]},
		{Path: "/agnhost-2", Link: "/agnhost"},
		{Path: "/localhost.crt", Mode: 0o644, Body: built["localhost.crt"]},
		{Path: "/localhost.key", Mode: 0o644, Body: built["localhost.key"]},
		{Path: "/uploads", Mode: os.ModeDir | 0o755},
	}
	// Upstream's image is Alpine's with packages, these among them.
	tools, err := hostPrograms(ctx, "/bin/bash", "/usr/bin/curl", netcat)
	if err != nil {
		return nil, err
	}
	// Debian's busybox as a shell takes its own applets for commands, whatever there is, and drops variables from the environment that no shell could name.
	tools = append(tools, File{Path: "/usr/bin/nc", Link: netcat}, File{Path: "/bin/nc", Link: netcat}, File{Path: "/bin/sh", Link: "/bin/bash"})
	web := ocispec.ImageConfig{Cmd: []string{"httpd", "-f", "-p", "80", "-h", "/tmp"}}
	tool := ocispec.ImageConfig{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}
	list := []Image{
		with(e2eRegistry+"agnhost:2.63.0", tool, append(account, tools...)...),
		with(e2eRegistry+"agnhost:2.55", tool, append(account, tools...)...),
		with(e2eRegistry+"busybox:1.37.0-1", ocispec.ImageConfig{Cmd: []string{"sh"}}, tools...),
		with(e2eRegistry+"glibc-dns-testing:2.0.0", ocispec.ImageConfig{Cmd: []string{"sh"}}),
		with(e2eRegistry+"nginx:1.15-4", web),
		with(e2eRegistry+"nginx:1.27-0", web),
		with(e2eRegistry+"nonroot:1.5", ocispec.ImageConfig{User: "1234"}),
		with(e2eRegistry+"nonewprivs:1.4", ocispec.ImageConfig{Cmd: []string{"nnp"}}, File{Path: "/usr/local/bin/nnp", Mode: os.ModeSetuid | os.ModeSetgid | 0o755, Body: built["nonewprivs"]},
			File{Path: "/usr/local", Mode: os.ModeDir | 0o755}, File{Path: "/usr/local/bin", Mode: os.ModeDir | 0o755}),
		{Name: "registry.k8s.io/pause:3.10.2", Config: pause.Config, Files: pause.Files},
	}
	var paths []string
	for i, image := range list {
		file := filepath.Join(dir, fmt.Sprintf("%d.tar", i))
		if err := Write(file, image); err != nil {
			return nil, err
		}
		paths = append(paths, file)
	}
	return paths, nil
}

// hostPrograms returns programs of the host and the libraries that they want, at their own places.
func hostPrograms(ctx context.Context, programs ...string) ([]File, error) {
	files := map[string]File{}
	add := func(name string, mode os.FileMode) error {
		body, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read a program of this host: %w", err)
		}
		for d := path.Dir(name); d != "/"; d = path.Dir(d) {
			if d != "/bin" && d != "/usr/bin" { // busybox has them
				files[d] = File{Path: d, Mode: os.ModeDir | 0o755}
			}
		}
		files[name] = File{Path: name, Mode: mode, Body: body}
		return nil
	}
	for _, program := range programs {
		if err := add(program, 0o755); err != nil {
			return nil, err
		}
		out, err := exec.CommandContext(ctx, "ldd", program).Output()
		if err != nil {
			return nil, fmt.Errorf("look for the libraries of %s: %w", program, err)
		}
		for _, word := range strings.Fields(string(out)) {
			if strings.HasPrefix(word, "/") {
				if err := add(word, 0o755); err != nil {
					return nil, err
				}
			}
		}
	}
	return slices.Collect(maps.Values(files)), nil
}
