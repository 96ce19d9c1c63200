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

// e2eRegistry is the registry from which upstream's tests take their images.
const e2eRegistry = "registry.k8s.io/e2e-test-images/"

// netcat is Debian's netcat-openbsd. Busybox's nc has no UDP.
const netcat = "/usr/bin/nc.openbsd"

// nmeter does the one thing that upstream needs from busybox's program of that name, which Debian's
// busybox lacks: it prints the time with its milliseconds.
const nmeter = "#!/bin/bash\nt=$EPOCHREALTIME\nTZ=UTC printf '%(%T)T.%s\\n' ${t:0:10} ${t:11:3}\n"

// ash is a shell with the messages of upstream's busybox and its handling of the environment.
// Debian's busybox drops variables from the environment whose names a shell does not allow. bash
// does not.
const ash = `#!/bin/bash
mapfile -d '' -t all </proc/self/environ
for v in "${all[@]}"; do
  [[ ${v%%=*} =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || exec -a /bin/sh /bin/bash "$@"
done
exec -a /bin/sh ` + busyboxPath + ` "$@"
`

// Upstream makes images that replace those of Kubernetes' own end-to-end tests (test/utils/image in
// its source), and serves them as registry.k8s.io. They have upstream's programs, which
// "scripts/deps cluster conformance" has built in the checkout at root, on the host's busybox.
func Upstream(ctx context.Context, root string) (*Mirror, error) {
	built, err := upstreamFiles(root)
	if err != nil {
		return nil, err
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
		all := map[string]File{} // of two files at one path, the later one
		for _, f := range slices.Concat(base.Files, files) {
			all[f.Path] = f
		}
		// two images with the same content must still be two
		config.Labels = map[string]string{"name": name}
		return Image{Name: name, Config: config, Files: slices.Collect(maps.Values(all))}
	}
	account := []File{
		{
			Path: "/etc/passwd", Mode: 0o644,
			Body: []byte("root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n"),
		},
		{
			Path: "/etc/group", Mode: 0o644,
			Body: []byte("root:x:0:\nuser-defined-in-image:x:1000:\n" +
				"group-defined-in-image:x:50000:user-defined-in-image\n"),
		},
		{Path: "/etc/os-release", Mode: 0o644, Body: []byte("NAME=\"Alpine Linux\"\n")},
		{Path: "/agnhost", Mode: 0o755, Body: built["agnhost"]},
		{Path: "/agnhost-2", Link: "/agnhost"},
		{Path: "/localhost.crt", Mode: 0o644, Body: built["localhost.crt"]},
		{Path: "/localhost.key", Mode: 0o644, Body: built["localhost.key"]},
		{Path: "/uploads", Mode: os.ModeDir | 0o755},
	}
	// Upstream's image is Alpine's with packages. These programs are among them.
	tools, err := hostPrograms(ctx, "/bin/bash", "/usr/bin/curl", netcat)
	if err != nil {
		return nil, err
	}
	// Debian's busybox as a shell runs its own applets before all other commands, and drops
	// variables from the environment whose names a shell does not allow.
	tools = append(tools, File{Path: "/usr/bin/nc", Link: netcat}, File{Path: "/bin/nc", Link: netcat},
		File{Path: "/bin/sh", Link: "/bin/bash"},
		File{Path: "/bin/nmeter", Mode: 0o755, Body: []byte(nmeter)})
	ipc, err := hostPrograms(ctx, "/usr/bin/ipcmk", "/usr/bin/ipcs")
	if err != nil {
		return nil, err
	}
	picture := func(name string) Image { // a web server of one picture, and which one it is
		return with(e2eRegistry+name+":1.8",
			ocispec.ImageConfig{Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}}, append(account,
				File{Path: "/" + name + ".jpg", Mode: 0o644, Body: built[name+".jpg"]},
				File{Path: "/data.json", Mode: 0o644, Body: built[name+".json"]})...)
	}
	web := ocispec.ImageConfig{Cmd: []string{"httpd", "-f", "-p", "80", "-h", "/tmp"}}
	tool := ocispec.ImageConfig{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}
	list := []Image{
		with(e2eRegistry+"agnhost:2.63.0", tool, append(account, tools...)...),
		with(e2eRegistry+"agnhost:2.55", tool, append(account, tools...)...),
		with(e2eRegistry+"busybox:1.37.0-1", ocispec.ImageConfig{Cmd: []string{"sh"}},
			append(tools, File{Path: "/bin/sh", Mode: 0o755, Body: []byte(ash)})...),
		with(e2eRegistry+"glibc-dns-testing:2.0.0", ocispec.ImageConfig{Cmd: []string{"sh"}}),
		with(e2eRegistry+"ipc-utils:1.4", ocispec.ImageConfig{Cmd: []string{"sh"}}, ipc...),
		picture("kitten"), picture("nautilus"),
		with(e2eRegistry+"nginx:1.15-4", web),
		with(e2eRegistry+"nginx:1.27-0", web),
		with(e2eRegistry+"nonroot:1.5", ocispec.ImageConfig{User: "1234"}),
		with(e2eRegistry+"nonewprivs:1.4", ocispec.ImageConfig{Cmd: []string{"nnp"}},
			File{Path: "/usr/local/bin/nnp", Mode: os.ModeSetuid | os.ModeSetgid | 0o755, Body: built["nonewprivs"]},
			File{Path: "/usr/local", Mode: os.ModeDir | 0o755}, File{Path: "/usr/local/bin", Mode: os.ModeDir | 0o755}),
		with(e2eRegistry+"sample-device-plugin:1.7", ocispec.ImageConfig{
			Entrypoint: []string{"/sample-device-plugin", "-alsologtostderr"},
		}, File{Path: "/sample-device-plugin", Mode: 0o755, Body: built["sample-device-plugin"]}),
		with(e2eRegistry+"sample-apiserver:1.29.2", ocispec.ImageConfig{Entrypoint: []string{"/sample-apiserver"}},
			File{Path: "/sample-apiserver", Mode: 0o755, Body: built["sample-apiserver"]}),
		with("registry.k8s.io/etcd:3.6.8-0", ocispec.ImageConfig{}, append(tools,
			File{Path: "/usr/local", Mode: os.ModeDir | 0o755}, File{Path: "/usr/local/bin", Mode: os.ModeDir | 0o755},
			File{Path: "/usr/local/bin/etcd", Mode: 0o755, Body: built["etcd"]})...),
		{Name: "registry.k8s.io/pause:3.10.2", Config: pause.Config, Files: pause.Files},
	}
	return newMirror(list)
}

// upstreamFiles returns what "scripts/deps cluster conformance" has built, by name.
func upstreamFiles(root string) (map[string][]byte, error) {
	built := map[string][]byte{}
	for _, file := range []string{
		"conformance/agnhost", "conformance/localhost.crt", "conformance/localhost.key", "conformance/nonewprivs",
		"conformance/kitten.jpg", "conformance/kitten.json", "conformance/nautilus.jpg", "conformance/nautilus.json",
		"conformance/sample-device-plugin", "conformance/sample-apiserver", "etcd",
	} {
		text, err := os.ReadFile(filepath.Join(root, ".cache", "bin", file))
		if err != nil {
			return nil, fmt.Errorf("read upstream's programs (run \"scripts/deps cluster conformance\"): %w", err)
		}
		built[path.Base(file)] = text
	}
	return built, nil
}

// hostPrograms returns programs of the host and the libraries that they need, at the same paths.
func hostPrograms(ctx context.Context, programs ...string) ([]File, error) {
	files := map[string]File{}
	add := func(name string, mode os.FileMode) error {
		body, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read a program of this host: %w", err)
		}
		for d := path.Dir(name); d != "/"; d = path.Dir(d) {
			if d != "/bin" && d != "/usr/bin" { // busybox has these folders
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
