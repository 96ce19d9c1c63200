package volumes

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/node/plugins"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/test/csidriver"
)

const (
	testDriver = "test.berth.dev"
	stages     = csiapi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
)

// csiRig is a node with a CSI driver.
type csiRig struct {
	t       *testing.T
	root    string
	driver  *csidriver.Driver
	drivers *csi.Drivers
	// object is the driver's CSIDriver, and pv what the claim "c" is bound to.
	object *storagev1.CSIDriver
	pv     *v1.PersistentVolume
	// attached is what is said of attachments.
	attached error
	// changes counts how often the volumes in use changed.
	changes int
}

func newCSIRig(t *testing.T, can ...csiapi.NodeServiceCapability_RPC_Type) *csiRig {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	r := &csiRig{
		t: t, root: mountDir(t), object: csi.Unknown(testDriver),
		driver:  &csidriver.Driver{Dir: dir, Registry: dir + "/registry", Name: testDriver, Can: can},
		drivers: csi.NewDrivers(func() {}, nil, nil),
		pv: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, MountOptions: []string{"noatime"},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver:               testDriver,
				VolumeHandle:         "h",
				VolumeAttributes:     map[string]string{"a": "b"},
				NodeStageSecretRef:   &v1.SecretReference{Namespace: "other", Name: "stage"},
				NodePublishSecretRef: &v1.SecretReference{Namespace: "other", Name: "publish"},
			}},
		}},
	}
	r.driver.OnCrash = func() {}
	must(t, r.driver.Start())
	t.Cleanup(r.driver.Stop)
	r.register()
	return r
}

// plugin is how the driver registers.
func (r *csiRig) plugin() plugins.Plugin {
	return plugins.Plugin{
		Name:     testDriver,
		Endpoint: r.driver.Dir + "/csi.sock",
		Versions: []string{"1.0.0"},
		Socket:   "reg",
	}
}

func (r *csiRig) register() {
	r.t.Helper()
	must(r.t, r.drivers.Register(r.t.Context(), r.plugin()))
}

// manager returns a new manager, as after a start of the agent.
func (r *csiRig) manager() *Manager {
	return New(Config{RootDir: r.root, NodeName: "node"}, Deps{
		Objects: newStore(), Claims: boundTo{"c": r.pv},
		CSI: csi.Deps{
			Drivers: r.drivers,
			Object:  func(*v1.Pod, string) (*storagev1.CSIDriver, error) { return r.object, nil },
			Secret: func(_ context.Context, _ *v1.Pod, ref *v1.SecretReference) (map[string][]byte, error) {
				return map[string][]byte{"key": []byte(ref.Namespace + "/" + ref.Name)}, nil
			},
			Token: func(_ *v1.Pod, ask storagev1.TokenRequest) (string, time.Time, error) {
				return "token for " + ask.Audience, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), nil
			},
			Attached: func(*v1.Pod, v1.UniqueVolumeName) error { return r.attached },
			Attachment: func(_ context.Context, _ *v1.Pod, name string) (map[string]string, error) {
				return map[string]string{"from": name}, nil
			},
			Changed: func() { r.changes++ },
		},
	})
}

// ensure brings up a pod's volumes, and returns where the volume "v" is and the error.
func (r *csiRig) ensure(m *Manager, pod *v1.Pod) (string, error) {
	r.t.Helper()
	must(r.t, m.EnsureDirs(r.t.Context(), pod))
	mounts, err := m.Ensure(r.t.Context(), pod, Dynamic{})
	return mounts["v"].HostPath, err
}

// gone takes a pod down, and checks that nothing of it is left.
func (r *csiRig) gone(m *Manager, pod *v1.Pod) {
	r.t.Helper()
	must(r.t, m.Remove(r.t.Context(), pod.UID))
	if exists(m.PodDir(pod.UID)) {
		r.t.Error("the pod's directory is left")
	}
	mounts, err := mountsBeneath(m.PodDir(pod.UID))
	if err != nil || len(mounts) > 0 {
		r.t.Errorf("mounts are left: %v, %v", mounts, err)
	}
}

// nothingStaged checks that no volume is staged, nor any record of that left.
func (r *csiRig) nothingStaged() {
	r.t.Helper()
	left, _ := filepath.Glob(r.root + "/plugins/kubernetes.io/csi/*/*")
	mounts, err := mountsBeneath(r.root)
	if len(left) > 0 || err != nil || len(mounts) > 0 {
		r.t.Errorf("left: %v, %v, %v", left, mounts, err)
	}
}

// calls returns the methods that the driver was called with since the last time, but the questions
// what it can do.
func (r *csiRig) calls() []csidriver.Call {
	r.t.Helper()
	calls, err := csidriver.Calls(r.driver.Dir)
	must(r.t, err)
	must(r.t, os.RemoveAll(r.driver.Dir+"/calls"))
	return slices.DeleteFunc(calls, func(c csidriver.Call) bool { return strings.HasPrefix(c.Method, "NodeGet") })
}

// called checks the methods and returns the requests.
func (r *csiRig) called(want ...string) []map[string]any {
	r.t.Helper()
	var got []string
	var requests []map[string]any
	for _, c := range r.calls() {
		got = append(got, c.Method)
		request := map[string]any{}
		must(r.t, json.Unmarshal(c.Request, &request))
		requests = append(requests, request)
	}
	if !slices.Equal(got, want) {
		r.t.Fatalf("the driver was called with %v, want %v", got, want)
	}
	return requests
}

func csiInline() v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{
		Driver:               testDriver,
		ReadOnly:             ptr.To(true),
		FSType:               ptr.To("ext4"),
		VolumeAttributes:     map[string]string{"inline": "yes"},
		NodePublishSecretRef: &v1.LocalObjectReference{Name: "login"},
	}}}
}

func podNamed(uid string, volumes ...v1.Volume) *v1.Pod {
	pod := testPod(volumes...)
	pod.UID, pod.Name = types.UID(uid), uid
	return pod
}

// An inline volume is published with what its driver wants to know, and unpublished; never staged.
func TestCSIInline(t *testing.T) {
	r := newCSIRig(t, stages)
	r.object.Spec.PodInfoOnMount = ptr.To(true)
	r.object.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}}
	m, pod := r.manager(), podNamed("pod", csiInline())
	pod.Spec.ServiceAccountName = "account"
	at, err := r.ensure(m, pod)
	must(t, err)
	if want := m.PodDir("pod") + "/volumes/kubernetes.io~csi/v/mount"; at != want || read(t, at, "inline") != "yes" {
		t.Errorf("it is at %s, want %s", at, want)
	}
	request := r.called("NodePublishVolume")[0]
	attributes, _ := request["volumeContext"].(map[string]any)
	for key, want := range map[string]string{
		"csi.storage.k8s.io/pod.name":            "pod",
		"csi.storage.k8s.io/pod.namespace":       "ns",
		"csi.storage.k8s.io/pod.uid":             "pod",
		"csi.storage.k8s.io/serviceAccount.name": "account",
		"csi.storage.k8s.io/ephemeral":           "true",
		"inline":                                 "yes",
		"csi.storage.k8s.io/serviceAccount.tokens": `{"vault":{"token":"token for ` +
			`vault","expirationTimestamp":"2030-01-01T00:00:00Z"}}`,
	} {
		if attributes[key] != want {
			t.Errorf("%s is %q, want %q", key, attributes[key], want)
		}
	}
	if s := fmt.Sprint(request["secrets"]); s != "map[key:ns/login]" || request["readonly"] != true ||
		request["stagingTargetPath"] != nil {
		t.Errorf("asked for %v", request)
	}
	if again, err := r.ensure(r.manager(), pod); err != nil || again != at {
		t.Errorf("a second time it is at %s, %v", again, err)
	}
	r.called()
	r.gone(r.manager(), pod)
	r.called("NodeUnpublishVolume")
	r.nothingStaged()
}

// A driver may want its tokens where nobody looks.
func TestCSITokensInSecrets(t *testing.T) {
	r := newCSIRig(t)
	r.object.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: ""}}
	r.object.Spec.ServiceAccountTokenInSecrets = ptr.To(true)
	m, pod := r.manager(), podNamed("pod", csiInline())
	_, err := r.ensure(m, pod)
	must(t, err)
	request := r.called("NodePublishVolume")[0]
	secrets, _ := request["secrets"].(map[string]any)
	if secrets["csi.storage.k8s.io/serviceAccount.tokens"] == nil ||
		strings.Contains(fmt.Sprint(request["volumeContext"]), "tokens") {
		t.Errorf("asked for %v", request)
	}
	r.gone(m, pod)
}

// A pod's own volume can have the name of the PersistentVolume of its claim. It takes neither the
// place nor the record of that one, which would be unstaged under the pod.
func TestCSIVolumesOfOneName(t *testing.T) {
	r := newCSIRig(t, stages)
	inline := csiInline()
	inline.Name = "pv"
	m, pod := r.manager(), podNamed("pod", claimVolume("v", "c"), inline)
	_, err := r.ensure(m, pod)
	if err == nil || !strings.Contains(err.Error(), `give the pod's own volume another name than "pv"`) {
		t.Errorf("Ensure() = %v", err)
	}
	must(t, r.manager().CSI().PruneStaged(t.Context()))
	r.called("NodeStageVolume", "NodePublishVolume")
	r.gone(r.manager(), pod)
	r.called("NodeUnpublishVolume", "NodeUnstageVolume")
	r.nothingStaged()
}

// Two pods share a volume: it is staged before the first has it, and unstaged after the last has
// had it, whichever agent that is.
func TestCSIPersistent(t *testing.T) {
	r := newCSIRig(t, stages, csiapi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	m := r.manager()
	one, two := podNamed("one", claimVolume("v", "c")), podNamed("two", claimVolume("v", "c"))
	at, err := r.ensure(m, one)
	must(t, err)
	requests := r.called("NodeStageVolume", "NodePublishVolume")
	staged := r.root +
		"/plugins/kubernetes.io/csi/test.berth.dev/aaa9402664f1a41f40ebbc52c9993eb66aeb366602958fdfaa283b71e64db123/" +
		"globalmount"
	for i, request := range requests {
		capability := fmt.Sprint(request["volumeCapability"])
		if request["stagingTargetPath"] != staged || request["volumeId"] != "h" ||
			!strings.Contains(capability, "SINGLE_NODE_MULTI_WRITER") || !strings.Contains(capability, "noatime") ||
			fmt.Sprint(request["secrets"]) != []string{"map[key:other/stage]", "map[key:other/publish]"}[i] {
			t.Errorf("asked for %v", request)
		}
	}
	if got := read(t, m.PodDir("one"),
		"volumes/kubernetes.io~csi/pv/vol_data.json"); got != `{"specVolID":"pv","volumeHandle":"h","driverName":"test.berth.dev","nodeName":"node",`+
		`"attachmentID":"`+csi.AttachmentName("h", testDriver, "node")+`","volumeLifecycleMode":"Persistent"}` {
		t.Errorf("on record is %s", got)
	}
	write(t, at+"/file", "kept")
	other, err := r.ensure(m, two)
	must(t, err)
	r.called("NodePublishVolume")
	if read(t, other, "file") != "kept" {
		t.Error("it is another volume")
	}
	r.gone(m, one)
	r.called("NodeUnpublishVolume")
	r.gone(r.manager(), two)
	r.called("NodeUnpublishVolume", "NodeUnstageVolume")
	r.nothingStaged()
	if read(t, r.driver.Dir, "volumes/h/file") != "kept" {
		t.Error("the data is lost")
	}
}

// A volume that one pod may have alone is the first one's until nothing of that is left, also under
// another agent.
func TestCSIReadWriteOncePod(t *testing.T) {
	r := newCSIRig(t, stages)
	r.pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	one, two := podNamed("one", claimVolume("v", "c")), podNamed("two", claimVolume("v", "c"))
	m := r.manager()
	_, err := r.ensure(m, one)
	must(t, err)
	r.called("NodeStageVolume", "NodePublishVolume")
	for range 2 {
		if _, err := r.ensure(m, two); err == nil ||
			!strings.Contains(err.Error(),
				"volume uses the ReadWriteOncePod access mode and is already in use by another pod") {
			t.Errorf("a second pod: %v", err)
		}
		m = r.manager()
		_, err := r.ensure(m, one)
		must(t, err)
	}
	r.called()
	r.gone(m, one)
	r.called("NodeUnpublishVolume", "NodeUnstageVolume")
	_, err = r.ensure(m, two)
	must(t, err)
	r.called("NodeStageVolume", "NodePublishVolume")
	r.gone(m, two)
	r.called("NodeUnpublishVolume", "NodeUnstageVolume")
	r.nothingStaged()
}

func TestCSIFaults(t *testing.T) {
	faulty{
		rig:    func(t *testing.T) *csiRig { t.Helper(); return newCSIRig(t, stages) },
		pod:    func(uid string) *v1.Pod { return podNamed(uid, claimVolume("v", "c")) },
		faults: []csidriver.Fault{csidriver.Fail, csidriver.Late, csidriver.Crash},
		up: map[string]string{
			"NodeGetCapabilities": `MountVolume.SetUp failed for volume "pv" : kubernetes.io/csi: ask CSI driver ` +
				`test.berth.dev what it can do: rpc error: code = `,
			"NodeStageVolume": `MountVolume.MountDevice failed for volume "pv" : rpc error: code = `,
			"NodePublishVolume": `MountVolume.SetUp failed for volume "pv" : kubernetes.io/csi: mounter.SetUpAt ` +
				`failed: rpc error: code = `,
		},
		down: `UnmountVolume.TearDown failed for volume "pv" : kubernetes.io/csi: `,
		left: (*csiRig).nothingStaged,
	}.run(t)
}

// faulty is a volume whose driver has faults. Whatever goes wrong in it, the volume comes up once
// that is over, and goes down with nothing left, also under another agent.
type faulty struct {
	rig    func(t *testing.T) *csiRig
	pod    func(uid string) *v1.Pod
	faults []csidriver.Fault
	// up has the methods that bring the volume up and the words when one fails, down the words when
	// one fails that takes it down.
	up   map[string]string
	down string
	// left fails the test where something of the volume is left.
	left func(*csiRig)
}

func (f faulty) run(t *testing.T) {
	for _, fault := range f.faults {
		for method, words := range f.up {
			t.Run(string(fault)+" in "+method, func(t *testing.T) {
				r := f.rig(t)
				m, pod := r.manager(), f.pod("pod")
				must(t, csidriver.Set(r.driver.Dir, method, fault))
				_, err := r.ensure(m, pod)
				if err == nil || !strings.Contains(err.Error(), words) {
					t.Errorf("error %v", err)
				}
				must(t, csidriver.Set(r.driver.Dir, method, ""))
				r.gone(r.manager(), pod) // it never came up, and leaves nothing
				f.left(r)
				must(t, csidriver.Set(r.driver.Dir, method, fault))
				if _, err = r.ensure(m, pod); err == nil {
					t.Error("no error")
				}
				must(t, csidriver.Set(r.driver.Dir, method, ""))
				_, err = r.ensure(m, pod)
				must(t, err)
				r.gone(m, pod)
				f.left(r)
			})
		}
		for _, method := range []string{"NodeUnpublishVolume", "NodeUnstageVolume"} {
			t.Run(string(fault)+" in "+method, func(t *testing.T) {
				r := f.rig(t)
				m, pod := r.manager(), f.pod("pod")
				_, err := r.ensure(m, pod)
				must(t, err)
				must(t, csidriver.Set(r.driver.Dir, method, fault))
				if err := m.Remove(t.Context(), pod.UID); err == nil || !strings.Contains(err.Error(), f.down) {
					t.Errorf("error %v", err)
				}
				must(t, csidriver.Set(r.driver.Dir, method, ""))
				r.gone(r.manager(), pod)
				f.left(r)
			})
		}
	}
}

// A record that a loss of power has damaged keeps neither its own pod from going nor others: what
// may be in use stays staged until nobody can have it.
func TestCSIDamagedRecord(t *testing.T) {
	r := newCSIRig(t, stages)
	m := r.manager()
	one, two := podNamed("one", claimVolume("v", "c")), podNamed("two", claimVolume("v", "c"))
	for _, pod := range []*v1.Pod{one, two} {
		_, err := r.ensure(m, pod)
		must(t, err)
	}
	write(t, m.PodDir("one")+"/volumes/kubernetes.io~csi/pv/vol_data.json", "")
	r.calls()
	m = r.manager()
	if stats, err := m.CSI().Stats(t.Context(), "one", "pv", false); stats != nil || err != nil {
		t.Errorf("stats of what nobody knows: %+v, %v", stats, err)
	}
	r.gone(m, two)
	r.called("NodeUnpublishVolume")
	must(t, m.CSI().PruneStaged(t.Context()))
	r.called()
	r.gone(m, one)
	r.called()
	must(t, m.CSI().PruneStaged(t.Context()))
	r.called("NodeUnstageVolume")
	r.nothingStaged()
}

// A driver that is not there is named; what is up stays up without it, and what it has to take down
// waits for it.
func TestCSIDriverIsAway(t *testing.T) {
	r := newCSIRig(t, stages)
	r.drivers.Deregister(r.plugin())
	m, pod := r.manager(), podNamed("pod", claimVolume("v", "c"))
	const want = "driver name test.berth.dev not found in the list of registered CSI drivers"
	if _, err := r.ensure(m, pod); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	r.gone(m, pod)
	r.register()
	at, err := r.ensure(m, pod)
	must(t, err)
	r.drivers.Deregister(r.plugin())
	if got, err := r.ensure(r.manager(), pod); err != nil || got != at {
		t.Errorf("up at %s, %v", got, err)
	}
	if err := m.Remove(t.Context(), pod.UID); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	if !exists(at) {
		t.Error("it was taken down without its driver")
	}
	r.register()
	r.gone(m, pod)
	r.nothingStaged()
}

// After the machine was down nothing is mounted: the volume is brought up again, whatever the files
// say.
func TestCSIAfterReboot(t *testing.T) {
	r := newCSIRig(t, stages)
	m, pod := r.manager(), podNamed("pod", claimVolume("v", "c"))
	at, err := r.ensure(m, pod)
	must(t, err)
	write(t, at+"/file", "kept")
	must(t, m.unmountAll(t.Context(), r.root))
	r.calls()
	_, err = r.ensure(r.manager(), pod)
	must(t, err)
	r.called("NodeStageVolume", "NodePublishVolume")
	if read(t, at, "file") != "kept" {
		t.Error("the volume is not there")
	}
	r.gone(m, pod)
	r.nothingStaged()
}

// What a kubelet has brought up is up, and is taken down like one's own.
func TestCSIFromKubelet(t *testing.T) {
	r := newCSIRig(t, stages)
	m, pod := r.manager(), podNamed("pod", claimVolume("v", "c"))
	_, err := r.ensure(m, pod)
	must(t, err)
	r.calls()
	must(t, os.RemoveAll(m.PodDir("pod")+"/plugins")) // all that is berth's own
	m = r.manager()
	_, err = r.ensure(m, pod)
	must(t, err)
	r.called()
	r.gone(m, pod)
	r.called("NodeUnpublishVolume", "NodeUnstageVolume")
	r.nothingStaged()
}

// A volume that was left staged is unstaged, unless a pod has it.
func TestCSIPruneStaged(t *testing.T) {
	r := newCSIRig(t, stages)
	m, pod := r.manager(), podNamed("pod", claimVolume("v", "c"))
	_, err := r.ensure(m, pod)
	must(t, err)
	r.calls()
	write(t, m.PodDir("no-pod"), "somebody has left a file here")
	m = r.manager() // which knows nothing yet
	must(t, m.CSI().PruneStaged(t.Context()))
	r.called()
	must(t, m.unmountAll(t.Context(), m.PodDir("pod")))
	must(t, os.RemoveAll(m.PodDir("pod"))) // as if somebody had
	must(t, m.CSI().PruneStaged(t.Context()))
	r.called("NodeUnstageVolume")
	r.nothingStaged()
}

// Whether a volume is still in use is known without reading the directories of all pods: with
// hundreds of volumes that took seconds, after each change of a pod.
func TestCSIPruneStagedLooksAtHoldersOnly(t *testing.T) {
	r := newCSIRig(t, stages)
	m, pod := r.manager(), podNamed("pod", claimVolume("v", "c"))
	_, err := r.ensure(m, pod)
	must(t, err)
	r.calls()
	bystander := m.PodDir("bystander") + "/volumes"
	must(t, os.MkdirAll(bystander, 0o750))
	write(t, bystander+"/kubernetes.io~csi", "whoever reads this directory fails")
	must(t, m.CSI().PruneStaged(t.Context()))
	r.called()
	must(t, m.Remove(t.Context(), pod.UID))
	r.called("NodeUnpublishVolume", "NodeUnstageVolume")
	r.nothingStaged()
}

// Nothing is unstaged before all pods could be looked at once.
func TestCSIPruneStagedWaitsUntilAllPodsAreRead(t *testing.T) {
	r := newCSIRig(t, stages)
	m, pod := r.manager(), podNamed("pod", claimVolume("v", "c"))
	_, err := r.ensure(m, pod)
	must(t, err)
	r.calls()
	have, hidden := m.PodDir("pod")+"/volumes/kubernetes.io~csi", m.PodDir("pod")+"/hidden"
	must(t, os.Rename(have, hidden))
	write(t, have, "whoever reads this directory fails")
	m = r.manager()
	if err := m.CSI().PruneStaged(t.Context()); err == nil {
		t.Error("no error, though a pod's volumes could not be read")
	}
	r.called()
	must(t, os.Remove(have))
	must(t, os.Rename(hidden, have))
	must(t, m.CSI().PruneStaged(t.Context()))
	r.called()
	r.gone(m, pod)
	r.called("NodeUnpublishVolume", "NodeUnstageVolume")
	r.nothingStaged()
}

// BenchmarkCSIPruneStaged is one look at 500 staged volumes, each of which a pod has.
func BenchmarkCSIPruneStaged(b *testing.B) {
	root := b.TempDir()
	drivers := csi.NewDrivers(func() {}, nil, nil)
	driver := &csidriver.Driver{
		Dir: b.TempDir(), Name: testDriver, Can: []csiapi.NodeServiceCapability_RPC_Type{stages},
	}
	driver.Registry = driver.Dir + "/registry"
	if err := driver.Start(); err != nil {
		b.Fatal(err)
	}
	defer driver.Stop()
	err := drivers.Register(b.Context(), plugins.Plugin{
		Name: testDriver, Endpoint: driver.Dir + "/csi.sock", Versions: []string{"1.0.0"}, Socket: "reg",
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 500 {
		handle := fmt.Sprintf("h%d", i)
		record := fmt.Sprintf(`{"volumeHandle":%q,"driverName":%q}`, handle, testDriver)
		for _, dir := range []string{
			fmt.Sprintf("%s/pods/pod%d/volumes/kubernetes.io~csi/pv%d", root, i, i),
			fmt.Sprintf("%s/plugins/kubernetes.io/csi/%s/%x", root, testDriver, sha256.Sum256([]byte(handle))),
		} {
			if err := os.MkdirAll(dir, 0o750); err != nil {
				b.Fatal(err)
			}
			if err := os.WriteFile(dir+"/vol_data.json", []byte(record), 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	n := csi.NewNode(csi.Config{RootDir: root, NodeName: "node"}, csi.Deps{Drivers: drivers})
	for b.Loop() {
		if err := n.PruneStaged(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// A volume waits until it is attached, and is in use from then on until it is down: a controller
// must know both.
func TestCSIAttached(t *testing.T) {
	r := newCSIRig(t, stages)
	r.object = nil // as of a driver that the cluster has no object of
	r.attached = fmt.Errorf("%w: not attached", ErrUnderWay)
	m, pod := r.manager(), podNamed("pod", claimVolume("v", "c"))
	if _, err := r.ensure(m, pod); !errors.Is(err, ErrUnderWay) {
		t.Errorf("error %v", err)
	}
	r.called()
	inUse := func(m *Manager, want ...v1.UniqueVolumeName) {
		t.Helper()
		if got := m.CSI().InUse(); !slices.Equal(got, want) {
			t.Errorf("in use %v, want %v", got, want)
		}
	}
	inUse(m, "kubernetes.io/csi/test.berth.dev^h")
	if r.changes != 1 {
		t.Errorf("%d changes were told", r.changes)
	}
	r.attached = nil
	_, err := r.ensure(m, pod)
	must(t, err)
	for _, request := range r.called("NodeStageVolume", "NodePublishVolume") {
		if fmt.Sprint(request["publishContext"]) != "map[from:"+csi.AttachmentName("h", testDriver, "node")+"]" {
			t.Errorf("asked for %v", request)
		}
	}
	m = r.manager()
	inUse(m, "kubernetes.io/csi/test.berth.dev^h")
	r.gone(m, pod)
	inUse(m)
	waiting := podNamed("waiting", claimVolume("v", "c"))
	r.attached = fmt.Errorf("%w: not attached", ErrUnderWay)
	_, _ = r.ensure(m, waiting)
	r.gone(m, waiting)
	inUse(m)
}

// Whose files are whose: by the driver's policy, and by the driver itself where it can.
func TestCSIGroup(t *testing.T) {
	group := int64(4321)
	for _, tc := range []struct {
		name   string
		policy storagev1.FSGroupPolicy
		fsType string
		mode   v1.PersistentVolumeAccessMode
		can    []csiapi.NodeServiceCapability_RPC_Type
		want   bool
		told   bool
	}{
		{name: "default without a file system", mode: v1.ReadWriteOnce},
		{name: "default", fsType: "ext4", mode: v1.ReadWriteOnce, want: true},
		{name: "default, many writers", fsType: "ext4", mode: v1.ReadWriteMany},
		{name: "none", policy: storagev1.NoneFSGroupPolicy, fsType: "ext4", mode: v1.ReadWriteOnce},
		{name: "file", policy: storagev1.FileFSGroupPolicy, mode: v1.ReadWriteMany, want: true},
		{
			name:   "driver",
			policy: storagev1.FileFSGroupPolicy,
			mode:   v1.ReadWriteOnce,
			can:    []csiapi.NodeServiceCapability_RPC_Type{csiapi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP},
			told:   true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newCSIRig(t, tc.can...)
			if tc.policy != "" {
				r.object.Spec.FSGroupPolicy = &tc.policy
			}
			r.pv.Spec.CSI.FSType, r.pv.Spec.AccessModes = tc.fsType, []v1.PersistentVolumeAccessMode{tc.mode}
			write(t, r.driver.Dir+"/volumes/h/file", "x")
			m, pod := r.manager(), podNamed("pod", claimVolume("v", "c"))
			pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
			at, err := r.ensure(m, pod)
			must(t, err)
			if got := gidOf(t, at+"/file") == uint32(group); got != tc.want {
				t.Errorf("the group has the file: %v", got)
			}
			if told := strings.Contains(fmt.Sprint(r.called("NodePublishVolume")),
				"volumeMountGroup:4321"); told != tc.told {
				t.Errorf("the driver was told the group: %v", told)
			}
			r.gone(m, pod)
		})
	}
}

// A driver has the kinds of volumes that its object says.
func TestCSILifecycleModes(t *testing.T) {
	r := newCSIRig(t)
	for _, tc := range []struct {
		object *storagev1.CSIDriver
		volume v1.Volume
		want   string
	}{
		{nil, csiInline(), `volume mode "Ephemeral" not supported by driver test.berth.dev (no CSIDriver object)`},
		{
			&storagev1.CSIDriver{}, csiInline(),
			`volume mode "Ephemeral" not supported by driver test.berth.dev (only supports ["Persistent"])`,
		},
		{
			&storagev1.CSIDriver{
				Spec: storagev1.CSIDriverSpec{
					VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
				},
			}, claimVolume("v", "c"),
			`volume mode "Persistent" not supported by driver test.berth.dev (only supports ["Ephemeral"])`,
		},
	} {
		r.object = tc.object
		m, pod := r.manager(), podNamed("pod", tc.volume)
		if _, err := r.ensure(m, pod); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %s", err, tc.want)
		}
		r.gone(m, pod)
	}
	r.called()
}

// A driver that wants that publishes a volume again from time to time; the volume stays up though
// that fails.
func TestCSIRepublish(t *testing.T) {
	r := newCSIRig(t)
	r.object.Spec.RequiresRepublish = ptr.To(true)
	m, pod := r.manager(), podNamed("pod", csiInline())
	pod.Spec.Volumes[0].CSI.ReadOnly = nil
	_, err := r.ensure(m, pod)
	must(t, err)
	mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	if left := time.Until(mounts["v"].Again); left <= 0 || left > time.Minute {
		t.Errorf("again in %s", left)
	}
	r.called("NodePublishVolume")
	old := time.Now().Add(-2 * time.Minute)
	must(t, os.Chtimes(m.PodDir("pod")+"/plugins/kubernetes.io~csi/v/ready", old, old))
	must(t, csidriver.Set(r.driver.Dir, "NodePublishVolume", csidriver.Fail))
	mounts, err = m.Ensure(t.Context(), pod, Dynamic{})
	if again := mounts["v"].Again; err == nil || mounts["v"].HostPath == "" || !again.After(time.Now()) {
		t.Errorf("%+v, %v", mounts, err)
	}
	must(t, csidriver.Set(r.driver.Dir, "NodePublishVolume", ""))
	mounts, err = m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	if !mounts["v"].Again.After(time.Now()) {
		t.Errorf("again at %s", mounts["v"].Again)
	}
	r.called("NodePublishVolume", "NodePublishVolume")
	later := time.Now().Add(time.Hour) // the clock was put back since
	must(t, os.Chtimes(m.PodDir("pod")+"/plugins/kubernetes.io~csi/v/ready", later, later))
	for who, m := range map[string]*Manager{"the same agent": m, "another agent": r.manager()} {
		mounts, err = m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
		if left := time.Until(mounts["v"].Again); left <= 0 || left > time.Minute {
			t.Errorf("%s publishes it again in %s", who, left)
		}
	}
	r.called()
	r.gone(m, pod)
}
