package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berthd/berth/agent/objects"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/agent/volumes/claims"
	"github.com/berthd/berth/agent/worker"
)

// binder returns what binds the node's claims to its volumes. It remembers the bindings beside the pods' checkpoints.
func (a *Agent) binder() *claims.Binder {
	return claims.New(claims.Config{
		File:       filepath.Join(a.cfg.RootDir, "berth", "claims.json"),
		NodeLabels: a.node.Admission().Labels,
		PodExists: func(uid podUID) bool {
			_, err := os.Lstat(a.volumes.PodDir(uid))
			return err == nil
		},
		Logger: a.log,
	}, a.objects)
}

// objectChanged wakes the pods that read a local object that changed. A volume may be what any claim waits for.
func (a *Agent) objectChanged(kind, namespace, name string) {
	switch kind {
	case objects.KindPersistentVolume:
		a.volumeChanged(name)
	case objects.KindRuntimeClass:
		a.classChanged(name)
		return
	case objects.KindCSIDriver:
		a.wakeCSI()
		return
	}
	for uid, e := range a.workers.List() {
		if e.Phase != worker.Running || source.Bound(e.Pod) || kind != objects.KindPersistentVolume && e.Pod.Namespace != namespace {
			continue
		}
		for _, ref := range volumes.References(e.Pod) {
			if ref.Kind == kind && ref.Name == name || ref.Kind == volumes.KindClaim && kind == objects.KindPersistentVolume {
				a.workers.Wake(uid)
				break
			}
		}
	}
}

// volumeChanged ends the binding of a volume that no manifest has any more.
func (a *Agent) volumeChanged(name string) {
	if _, there := a.objects.Get(objects.KindPersistentVolume, "", name); there {
		return
	}
	if err := a.claims.Release(name); err != nil {
		a.log.Warn("the binding of a volume that is gone stays", "volume", name, "err", err)
	}
}

// imageVolumes says why the runtime cannot mount images as volumes, empty where it can or does not tell its release. The CRI has no other way to know: older
// releases take no notice of an image in a mount.
func (a *Agent) imageVolumes() string {
	v := a.version.Load()
	if v == nil {
		return ""
	}
	least := map[string][2]int{"containerd": {2, 1}, "cri-o": {1, 33}}
	want, known := least[strings.ToLower(v.RuntimeName)]
	major, minor, ok := release(v.RuntimeVersion)
	if !known || !ok || major > want[0] || major == want[0] && minor >= want[1] {
		return ""
	}
	return fmt.Sprintf("image volumes need %s %d.%d or later, and this is %s", v.RuntimeName, want[0], want[1], v.RuntimeVersion)
}

// release reads the first two numbers of a release such as v2.4.2 or 1.6.20~ds1.
func release(version string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	second := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(second)
	return major, minor, err1 == nil && err2 == nil
}
