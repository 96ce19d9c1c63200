package images

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// The images of what brings packets to Services. Each has the program that "scripts/deps services"
// builds, in place of the image that upstream publishes.
const (
	KubeProxy = "berth.local/kube-proxy:v1"
	CoreDNS   = "berth.local/coredns:v1"
)

// Services makes the images [KubeProxy] and [CoreDNS] as [Build] makes the others. kube-proxy's has
// the host's iptables.
func Services(ctx context.Context, root string) ([]Archive, error) {
	bin := filepath.Join(root, ".cache", "bin")
	proxy, dns := filepath.Join(bin, "kube-proxy"), filepath.Join(bin, "coredns")
	return build(ctx, root, []sample{
		{
			name: KubeProxy, file: "kube-proxy.tar", inputs: []string{proxy},
			image: func(ctx context.Context, _ string) (Image, error) { return proxyImage(ctx, proxy) },
		},
		{name: CoreDNS, file: "coredns.tar", inputs: []string{dns}, image: func(context.Context, string) (Image, error) {
			program, err := hostFile(dns, "/coredns")
			return Image{
				Name: CoreDNS, Config: ocispec.ImageConfig{Entrypoint: []string{"/coredns"}}, Files: append(users(), program),
			}, err
		}},
	})
}

// hostFile reads a program of the host for an image.
func hostFile(from, to string) (File, error) {
	body, err := os.ReadFile(from)
	if err != nil {
		return File{}, fmt.Errorf("read a program (run \"scripts/deps services\"): %w", err)
	}
	return File{Path: to, Mode: 0o755, Body: body}, nil
}

// proxyImage is kube-proxy with the host's iptables and the libraries that it loads.
func proxyImage(ctx context.Context, program string) (Image, error) {
	proxy, err := hostFile(program, "/usr/local/bin/kube-proxy")
	if err != nil {
		return Image{}, err
	}
	const tool = "/usr/sbin/iptables"
	real, err := filepath.EvalSymlinks(tool)
	if err != nil {
		return Image{}, fmt.Errorf("find the host's iptables (install iptables): %w", err)
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return Image{}, fmt.Errorf("list the extensions of iptables: %w", err)
	}
	loaded := append(extensions, real)
	needed, err := libraries(ctx, loaded)
	if err != nil {
		return Image{}, err
	}
	files := append(users(), proxy)
	for _, path := range append(needed, loaded...) {
		file, err := hostFile(path, path)
		if err != nil {
			return Image{}, err
		}
		files = append(files, file)
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			files = append(files, File{Path: "/usr/sbin/" + family + suffix, Link: real})
		}
	}
	return Image{
		Name: KubeProxy,
		Config: ocispec.ImageConfig{
			Entrypoint: []string{"/usr/local/bin/kube-proxy"},
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		Files: files,
	}, nil
}

// libraries returns the paths of the shared libraries that files of the host are linked with, and
// of their loader.
func libraries(ctx context.Context, files []string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", files...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the libraries of %s: %w", files[len(files)-1], err)
	}
	paths := map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if strings.HasSuffix(lines.Text(), ":") {
			continue // the name of a file that was asked for
		}
		for word := range strings.FieldsSeq(lines.Text()) {
			if strings.HasPrefix(word, "/") {
				paths[word] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(paths)), nil
}
