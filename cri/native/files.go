package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// shmSize is the size of a pod's /dev/shm, as in Docker and containerd.
	shmSize = "64m"
	// resolvConf, hostsFile and hostnameFile are the files of a sandbox that its containers get in
	// /etc unless they have mounts there; shmDir is their /dev/shm.
	resolvConf, hostsFile, hostnameFile, shmDir = "resolv.conf", "hosts", "hostname", "shm"
)

// hostname returns the name of the sandbox; on the node's network it is the node's if none is set.
func (s *sandbox) hostname() (string, error) {
	if name := s.config.GetHostname(); name != "" || !s.hostNetwork() {
		return name, nil
	}
	return os.Hostname()
}

// hostIPC reports whether the sandbox shares the node's shared memory.
func (s *sandbox) hostIPC() bool { return s.namespaces().GetIpc() == runtimeapi.NamespaceMode_NODE }

// makeSandboxFiles makes the files that every container of the sandbox gets.
func (r *Runtime) makeSandboxFiles(ctx context.Context, sb *sandbox) error {
	dir := r.sandboxDir(sb.id)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	name, err := sb.hostname()
	if err != nil {
		return err
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	resolver, err := resolver(sb.config.GetDnsConfig())
	if err != nil {
		return err
	}
	for file, content := range map[string][]byte{
		resolvConf: resolver, hostsFile: hosts, hostnameFile: []byte(name + "\n"),
	} {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	dir, err = filepath.EvalSymlinks(dir) // those of the state's directory
	if err != nil {
		return err
	}
	has, _ := sb.snapshot()
	if err := r.selinux.relabel(ctx, dir, has.SELinux.Mount); err != nil || sb.hostIPC() {
		return err
	}
	shm := filepath.Join(dir, shmDir)
	if err := makeShm(shm, sb); err != nil {
		return err
	}
	return r.selinux.relabel(ctx, shm, has.SELinux.Mount) // it is a mount of its own
}

// makeShm makes the pod's shared memory.
func makeShm(shm string, sb *sandbox) error {
	if err := os.Mkdir(shm, 0o700); err != nil {
		return err
	}
	err := unix.Mount("shm", shm, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size="+shmSize)
	if err != nil {
		return fmt.Errorf("mount %s: %w", shm, err)
	}
	uid, gid := userns(sb.namespaces()).host(0, 0)
	return os.Chown(shm, int(uid), int(gid))
}

// removeSandboxFiles removes the files and what is mounted there.
func (r *Runtime) removeSandboxFiles(_ context.Context, sb *sandbox) error {
	dir := r.sandboxDir(sb.id)
	if err := unmountAndRemove(filepath.Join(dir, shmDir)); err != nil {
		return err
	}
	for _, file := range []string{resolvConf, hostsFile, hostnameFile} {
		if err := os.Remove(filepath.Join(dir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// resolver returns the content of resolv.conf: the pod's, or the node's if the pod asks for
// nothing.
func resolver(dns *runtimeapi.DNSConfig) ([]byte, error) {
	if len(dns.GetServers())+len(dns.GetSearches())+len(dns.GetOptions()) == 0 {
		node, err := os.ReadFile("/etc/resolv.conf")
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return node, err
	}
	var b strings.Builder
	line := func(key string, values ...string) {
		if len(values) > 0 {
			fmt.Fprintf(&b, "%s %s\n", key, strings.Join(values, " "))
		}
	}
	line("search", dns.GetSearches()...)
	for _, server := range dns.GetServers() {
		line("nameserver", server)
	}
	line("options", dns.GetOptions()...)
	return []byte(b.String()), nil
}
