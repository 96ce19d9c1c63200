package images

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// busyboxPath is where Debian's busybox-static installs its program.
const busyboxPath = "/bin/busybox"

// sample is the recipe of one sample image.
type sample struct {
	name string
	// file is the archive's name in the cache.
	file string
	// inputs are the files and folders from which the image is made.
	inputs []string
	image  func(ctx context.Context, root string) (Image, error)
}

func samples() []sample {
	return []sample{
		{name: Pause, file: "pause.tar", inputs: []string{"test/images/pause"}, image: pauseImage},
		{name: Busybox, file: "busybox.tar", inputs: []string{busyboxPath}, image: busyboxImage},
		{name: Web, file: "web.tar", inputs: []string{"test/images/testapp"}, image: webImage},
	}
}

func pauseImage(ctx context.Context, root string) (Image, error) {
	return PauseFor(ctx, root, runtime.GOARCH)
}

// PauseFor makes the [Pause] image of the checkout at root for an architecture, as Go spells it.
func PauseFor(ctx context.Context, root, arch string) (Image, error) {
	program, err := compile(ctx, root, "./test/images/pause", "GOARCH="+arch)
	if err != nil {
		return Image{}, err
	}
	return Image{
		Name:         Pause,
		Config:       ocispec.ImageConfig{Entrypoint: []string{"/pause"}},
		Files:        []File{{Path: "/pause", Mode: 0o755, Body: program}},
		Architecture: arch,
	}, nil
}

func webImage(ctx context.Context, root string) (Image, error) {
	program, err := compile(ctx, root, "./test/images/testapp")
	if err != nil {
		return Image{}, err
	}
	return Image{
		Name:   Web,
		Config: ocispec.ImageConfig{Entrypoint: []string{"/testapp"}, Cmd: []string{"serve"}, WorkingDir: "/"},
		Files: append(users(),
			File{Path: "/testapp", Mode: 0o755, Body: program},
			File{Path: "/www", Mode: os.ModeDir | 0o755},
			File{Path: "/www/index.html", Mode: 0o644, Body: []byte("hello from the image\n")},
		),
	}, nil
}

func busyboxImage(ctx context.Context, _ string) (Image, error) {
	program, err := os.ReadFile(busyboxPath)
	if err != nil {
		return Image{}, fmt.Errorf("read the host's busybox (install busybox-static): %w", err)
	}
	applets, err := applets(ctx)
	if err != nil {
		return Image{}, err
	}
	return Image{
		Name: Busybox,
		Config: ocispec.ImageConfig{
			Cmd: []string{"sh"},
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		Files: append(append(users(), File{Path: busyboxPath, Mode: 0o755, Body: program}), applets...),
	}, nil
}

// applets returns the folders and links that make each busybox applet a command.
func applets(ctx context.Context) ([]File, error) {
	out, err := exec.CommandContext(ctx, busyboxPath, "--list-full").Output()
	if err != nil {
		return nil, fmt.Errorf("list the applets of %s: %w", busyboxPath, err)
	}
	folders := map[string]bool{"/bin": true}
	var files []File
	for _, applet := range strings.Fields(string(out)) {
		p := path.Join("/", applet)
		if p == busyboxPath {
			continue
		}
		for d := path.Dir(p); d != "/"; d = path.Dir(d) {
			folders[d] = true
		}
		files = append(files, File{Path: p, Link: busyboxPath})
	}
	for d := range folders {
		files = append(files, File{Path: d, Mode: os.ModeDir | 0o755})
	}
	return files, nil
}

// users returns the folders and account files that a program expects in any image.
func users() []File {
	return []File{
		{Path: "/etc", Mode: os.ModeDir | 0o755},
		{
			Path: "/etc/passwd", Mode: 0o644,
			Body: []byte("root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home/app:/bin/sh\n" +
				"nobody:x:65534:65534:nobody:/:/bin/false\n"),
		},
		{Path: "/etc/group", Mode: 0o644, Body: []byte("root:x:0:\napp:x:1000:\nextra:x:2000:app\nnogroup:x:65534:\n")},
		{Path: "/home", Mode: os.ModeDir | 0o755},
		{Path: "/home/app", Mode: os.ModeDir | 0o755, UID: 1000, GID: 1000},
		{Path: "/root", Mode: os.ModeDir | 0o700},
		{Path: "/tmp", Mode: os.ModeDir | os.ModeSticky | 0o777},
	}
}

// compile builds a static program of the checkout, with additional environment variables, and
// returns its bytes. The bytes depend only on the code and the Go release.
func compile(ctx context.Context, root, pkg string, more ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "berth-image-")
	if err != nil {
		return nil, fmt.Errorf("make a build folder for %s: %w", pkg, err)
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o",
		out, pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=linux")
	cmd.Env = append(cmd.Env, more...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("compile %s: %w: %s", pkg, err, strings.TrimSpace(text.String()))
	}
	return os.ReadFile(out)
}
