package apiserver

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const (
	// readyEvery is how often a start is asked whether it is over.
	readyEvery = 250 * time.Millisecond
	// settled is how long after that controllers still work on what the start made.
	settled = 15 * time.Second
	// lookEvery is how often it is decided after that whether memory is given back.
	lookEvery = 30 * time.Second
	// idle is how much may have been allocated since the last time, in bytes, for the heap to be
	// collected and its free pages to be given back: a busy server needs them again at once.
	idle = 16 << 20
	// worth is how much must have been allocated since memory was last given back, in bytes, to do so
	// again. An idle server allocates about 9 MB in 40 s.
	worth = 8 << 20
)

// uncached are the kinds whose watches come from the store itself, in the form of
// --watch-cache-sizes: kinds that few clients watch and that seldom change. A cache takes memory,
// ten goroutines and a timer that ticks each second.
var uncached = []string{
	"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
	"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
	"flowschemas.flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io",
	"validatingwebhookconfigurations.admissionregistration.k8s.io",
	"validatingadmissionpolicies.admissionregistration.k8s.io",
	"validatingadmissionpolicybindings.admissionregistration.k8s.io",
	"mutatingadmissionpolicies.admissionregistration.k8s.io",
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io",
	"apiservices.apiregistration.k8s.io", "customresourcedefinitions.apiextensions.k8s.io",
	"certificatesigningrequests.certificates.k8s.io", "leases.coordination.k8s.io",
	"ingressclasses.networking.k8s.io", "ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io",
	"ipaddresses.networking.k8s.io", "servicecidrs.networking.k8s.io", "runtimeclasses.node.k8s.io",
	"poddisruptionbudgets.policy", "priorityclasses.scheduling.k8s.io", "csidrivers.storage.k8s.io",
	"csinodes.storage.k8s.io", "csistoragecapacities.storage.k8s.io", "storageclasses.storage.k8s.io",
	"volumeattachments.storage.k8s.io", "volumeattributesclasses.storage.k8s.io",
	"deviceclasses.resource.k8s.io", "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io",
	"resourceslices.resource.k8s.io", "persistentvolumes", "persistentvolumeclaims", "limitranges",
	"resourcequotas", "replicationcontrollers", "podtemplates", "endpoints", "serviceaccounts",
	"horizontalpodautoscalers.autoscaling", "cronjobs.batch", "controllerrevisions.apps",
}

// withoutOpenAPIV2 leaves /openapi/v2 out: the document of all of the API, which no kubectl since
// 1.27 asks for and which takes a fifth of the heap. /openapi/v3 stays. The server of
// CustomResourceDefinitions keeps its own small part: without it, upstream makes no document of a
// definition for /openapi/v3 either.
func withoutOpenAPIV2(config *app.Config) {
	config.KubeAPIs.ControlPlane.Generic.OpenAPIConfig = nil
	config.Aggregator.GenericConfig.OpenAPIConfig = nil
}

// giveBack gives memory back until the context ends, again and again: the pages of the program's
// code, most of which ran once, and the heap's free pages if the server has little to do. loopback
// is the server's connection to itself.
func giveBack(ctx context.Context, loopback *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(loopback)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if !awaitReady(ctx, client) || !sleep(ctx, settled) {
		return nil
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(atWork)
	}
	for before, given := uint64(0), uint64(0); ; {
		now := allocated()
		if now-given >= worth {
			if before == 0 || now-before < idle {
				debug.FreeOSMemory()
			}
			if err := dropCode(); err != nil {
				return err
			}
			given = now
		}
		before = now
		if !sleep(ctx, lookEvery) {
			return nil
		}
	}
}

// awaitReady waits until the server has started. It returns false when the context ends before.
func awaitReady(ctx context.Context, client discovery.DiscoveryInterface) bool {
	for client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() != nil {
		if !sleep(ctx, readyEvery) {
			return false
		}
	}
	return true
}

// allocated returns how many bytes the heap has ever had allocated.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// isPIE says whether the program is position-independent: then data that nobody may write was written
// once, at the start (ld.so(8), RELRO), and must not be dropped.
func isPIE() bool {
	info, ok := debug.ReadBuildInfo()
	return !ok || slices.Contains(info.Settings, debug.BuildSetting{Key: "-buildmode", Value: "pie"})
}

// sleep returns after that time, or false when the context ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// dropCode takes the pages of the program's code and constants out of this process's memory. The
// kernel maps a page again from the file, or from its cache of it, when the page is next used
// (madvise(2), MADV_DONTNEED of a mapping that nobody can have written to).
func dropCode() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	pie := isPIE()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("read the mappings of the program: %w", err)
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var begin, end uintptr
		var rights string
		fields := strings.Fields(lines.Text()) // range, rights, offset, device, inode, path: proc(5)
		if len(fields) != 6 || fields[5] != program || strings.Contains(fields[1], "w") ||
			pie && !strings.Contains(fields[1], "x") {
			continue
		}
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &begin, &end, &rights); err != nil {
			return fmt.Errorf("read the mapping %q: %w", lines.Text(), err)
		}
		// Without this, one read can map 2 MiB again. A kernel without huge pages refuses it (EINVAL).
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, begin, end-begin, unix.MADV_NOHUGEPAGE)
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, begin, end-begin, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give the mapping %q back: %w", lines.Text(), errno)
		}
	}
	return lines.Err()
}
