package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/status"
)

// eventLog has the events of a pod.
type eventLog []string

func (e *eventLog) Pod(_ *v1.Pod, container, kind, reason, message string) {
	*e = append(*e, strings.TrimSpace(strings.Join([]string{container, kind, reason, message}, " ")))
}

func (e *eventLog) Node(kind, reason, message string) {
	*e = append(*e, strings.Join([]string{"node", kind, reason, message}, " "))
}

// noObjects is a node without any object.
type noObjects struct{}

func (noObjects) ConfigMap(*v1.Pod, string) (*v1.ConfigMap, error) { return nil, nil }
func (noObjects) Secret(*v1.Pod, string) (*v1.Secret, error)       { return nil, nil }
func (noObjects) Resolve(*v1.Pod, string) (*v1.PersistentVolume, error) {
	return nil, errors.New("PVC is not bound")
}

// syncOf returns a sync of a pod with these volumes.
func syncOf(t *testing.T, list ...v1.Volume) *Sync {
	t.Helper()
	group := tasks.New(t.Context(), func() {}, nil)
	t.Cleanup(group.Wait)
	main := v1.Container{Name: "main"}
	for i := range list {
		main.VolumeMounts = append(main.VolumeMounts, v1.VolumeMount{Name: list[i].Name, MountPath: "/" + list[i].Name})
	}
	return &Sync{
		Given: Given{
			Pod: &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"},
				Spec:       v1.PodSpec{Containers: []v1.Container{main}, Volumes: list},
			},
			Tasks: group, Unmounted: new(time.Time),
		},
		Found: Found{Waiting: map[string]status.Reason{}},
	}
}

func hostPath(name string, kind v1.HostPathType, path string) v1.Volume {
	return v1.Volume{
		Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}},
	}
}

// A volume that may come holds the pod back with an error, which is tried again. A volume that
// never will, or that is on its way, holds it back without an error.
func TestVolumesEnsure(t *testing.T) {
	git := v1.Volume{Name: "git", VolumeSource: v1.VolumeSource{GitRepo: &v1.GitRepoVolumeSource{}}}
	claim := v1.Volume{
		Name:         "claim",
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}},
	}
	nfs := v1.Volume{Name: "nfs", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/"}}}
	good := hostPath("good", v1.HostPathUnset, t.TempDir())
	for _, test := range []struct {
		name    string
		volumes []v1.Volume
		err     string
		waiting string
		events  int
	}{
		{"none", nil, "", "", 0},
		{"up", []v1.Volume{good}, "", "", 0},
		{"may come", []v1.Volume{good, claim}, "PVC is not bound", "", 1},
		{"never comes", []v1.Volume{good, git}, "", "git-repo volume plugin has been disabled", 1},
		{"on its way", []v1.Volume{nfs}, "", "mounting s:/", 0},
		{"all of them", []v1.Volume{git, claim, nfs}, "PVC is not bound", "", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			var events eventLog
			m := volumes.New(volumes.Config{RootDir: t.TempDir()},
				volumes.Deps{Objects: noObjects{}, Claims: noObjects{}})
			p := syncOf(t, test.volumes...)
			if err := m.EnsureDirs(t.Context(), p.Pod); err != nil {
				t.Fatal(err)
			}
			out, err := Volumes{
				Manager: m,
				Events:  &events,
				HostIPs: func() []string { return nil },
			}.Ensure(t.Context(), p)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if !strings.Contains(out.Waiting, test.waiting) || out.Halt != (test.waiting != "") ||
				(p.Problem.Message != "") != (test.waiting != "") {
				t.Errorf("outcome %+v, problem %+v", out, p.Problem)
			}
			if len(events) != test.events ||
				slices.ContainsFunc(events, func(e string) bool {
					return !strings.HasPrefix(e, "Warning FailedMount ")
				}) {
				t.Errorf("events %q", events)
			}
		})
	}
}

// attaching is a node whose claim "attached" has a volume that is not attached to it. There is no
// other claim.
type attaching struct{ noObjects }

func (attaching) Resolve(pod *v1.Pod, claim string) (*v1.PersistentVolume, error) {
	if claim != "attached" {
		return noObjects{}.Resolve(pod, claim)
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
	return pv, nil
}

// Volumes that stay missing are reported together every two minutes and three seconds, and a sync
// is asked for then. Volumes with an event of their own at each try are not among them.
func TestVolumesMissingForLong(t *testing.T) {
	volume := func(claim string) v1.Volume {
		return v1.Volume{
			Name: claim + "-v",
			VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			},
		}
	}
	nfs := v1.Volume{Name: "nfs", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/"}}}
	git := v1.Volume{Name: "git", VolumeSource: v1.VolumeSource{GitRepo: &v1.GitRepoVolumeSource{}}}
	for _, test := range []struct {
		name    string
		volumes []v1.Volume
		want    string
	}{
		{
			"waits",
			[]v1.Volume{nfs, volume("attached")},
			"unmounted volumes=[attached-v nfs], unattached volumes=[attached-v], failed to process volumes=[]",
		},
		{
			"waits, and fails",
			[]v1.Volume{volume("unbound"), nfs, git},
			"unmounted volumes=[git nfs unbound-v], unattached volumes=[], failed to process volumes=[unbound-v]",
		},
		{"only fails", []v1.Volume{volume("unbound"), git}, ""},
		{"up", []v1.Volume{hostPath("up", v1.HostPathUnset, "/")}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var events eventLog
				m := volumes.New(volumes.Config{RootDir: root},
					volumes.Deps{Objects: noObjects{}, Claims: attaching{}, CSI: csi.Deps{
						Object: func(*v1.Pod, string) (*storagev1.CSIDriver, error) { return nil, nil },
						Attached: func(*v1.Pod, v1.UniqueVolumeName) error {
							return fmt.Errorf("%w: not attached", volumes.ErrUnderWay)
						},
					}})
				ctx, cancel := context.WithCancel(t.Context())
				group := tasks.New(ctx, func() {}, nil)
				defer func() { cancel(); group.Wait() }()
				p := syncOf(t, test.volumes...)
				p.Tasks = group
				if err := m.EnsureDirs(t.Context(), p.Pod); err != nil {
					t.Fatal(err)
				}
				step := Volumes{Manager: m, Events: &events, HostIPs: func() []string { return nil }}
				look := func() (summaries int) {
					out, _ := step.Ensure(ctx, p)
					if due := time.Until(out.RetryAt); (test.want == "") != out.RetryAt.IsZero() ||
						test.want != "" && (due <= 0 || due > mountPatience) {
						t.Errorf("the next sync is at %s", out.RetryAt)
					}
					for _, e := range events {
						if strings.Contains(e, ": context deadline exceeded") {
							summaries++
							if want := "Warning FailedMount Unable to attach or mount volumes: " + test.want +
								": context deadline exceeded"; e != want {
								t.Errorf("reported %s, want %s", e, want)
							}
						}
					}
					return summaries
				}
				reported := 0
				for range 3 {
					time.Sleep(mountPatience - time.Second)
					if n := look(); n != reported {
						t.Errorf("reported %d times, too early", n)
					}
					time.Sleep(time.Second)
					if test.want != "" {
						time.Sleep(mountPatience)
						reported++
					}
					if n := look(); n != reported {
						t.Errorf("reported %d times, want %d", n, reported)
					}
				}
			})
		})
	}
}

// What takes long is a task, and its end is seen at once.
func TestSlowly(t *testing.T) {
	p := syncOf(t)
	run := make(chan error)
	do := func(context.Context) error { return <-run }
	for range 2 { // a task that runs is not started again
		if ended, err := slowly(p)("v", do); ended || err != nil {
			t.Errorf("ended %v, error %v", ended, err)
		}
	}
	run <- errors.New("it failed")
	p.Tasks.Wait()
	p.busy, p.Ended = p.Tasks.Look()
	if ended, err := slowly(p)("v", do); !ended || err == nil || err.Error() != "it failed" {
		t.Errorf("ended %v, error %v", ended, err)
	}
	if active := p.Tasks.Active(); len(active) != 0 {
		t.Errorf("active %v", active)
	}
}

// A pod that ends does not wait for a mount that hangs. It waits until no mount is being made any
// more.
func TestVolumesRemove(t *testing.T) {
	m := volumes.New(volumes.Config{RootDir: t.TempDir()}, volumes.Deps{Objects: noObjects{}})
	p := syncOf(t)
	ended := false
	slow := slowly(p)
	if _, err := slow("v", func(ctx context.Context) error {
		<-ctx.Done()
		ended = true
		return ctx.Err()
	}); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(p.Tasks.Active(), ofContainer) {
		t.Errorf("containers wait for %v", p.Tasks.Active())
	}
	if _, err := (Volumes{Manager: m}).Remove(t.Context(), p); err != nil || !ended {
		t.Errorf("error %v; the task has ended: %v", err, ended)
	}
}

func TestGroupsOf(t *testing.T) {
	p := syncOf(t, hostPath("a", "", "/"), hostPath("b", "", "/"), hostPath("c", "", "/"), hostPath("d", "", "/"))
	got := groupsOf(p.Pod, volumes.Mounts{"a": {Group: 7}, "b": {}, "c": {Group: 5}, "d": {Group: 7}})
	if !slices.Equal(got, []int64{7, 5}) {
		t.Errorf("groups %v", got)
	}
}

// store is an image store that has some images and keeps what it is asked for.
type store struct {
	has  map[string]string
	asks []string
}

func (s *store) Ensure(_ context.Context, req images.Request) images.Result {
	s.asks = append(s.asks, fmt.Sprintf("%s%s %s %s %d", req.Container, req.Volume, req.Image, req.Policy, req.Attempt))
	if ref := s.has[req.Image]; ref != "" {
		return images.Result{Ready: true, Image: cri.Image{Ref: ref}}
	}
	return images.Result{Reason: images.ReasonBackOff, Message: "no " + req.Image}
}

// Images of volumes are asked for when a container that mounts them starts. They hold back that
// container only.
func TestImageVolumes(t *testing.T) {
	image := func(name, reference string) v1.Volume {
		return v1.Volume{
			Name: name,
			VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{
				Reference: reference, PullPolicy: v1.PullAlways,
			}},
		}
	}
	mounting := func(name string, mounts ...string) *v1.Container {
		c := &v1.Container{Name: name}
		for _, m := range mounts {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: m})
		}
		return c
	}
	p := syncOf(t, image("good", "img:1"), image("bad", "img:2"), image("unused", "img:3"), hostPath("other", "", "/"))
	p.Sandbox = &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Attempt: 4}}
	p.Images = map[string]images.Result{}
	for _, c := range []*v1.Container{
		mounting("a", "good", "good"), mounting("b", "good", "bad"), mounting("c", "other"),
	} {
		p.Actions.Start = append(p.Actions.Start, plan.Start{Container: c})
		p.Images[c.Name] = images.Result{Ready: true}
	}
	s := &store{has: map[string]string{"img:1": "sha256:1"}}
	why := ""
	step := ImageVolumes{Images: s, Supported: func() string { return why }}
	out, err := step.Ensure(t.Context(), p)
	if err != nil || out.Waiting != "volume bad: ImagePullBackOff: no img:2" || out.Halt {
		t.Errorf("outcome %+v, %v", out, err)
	}
	if want := []string{"good img:1 Always 4", "bad img:2 Always 4"}; !slices.Equal(s.asks, want) {
		t.Errorf("asked for %q, want %q", s.asks, want)
	}
	if m := p.Volumes["good"]; !m.ReadOnly || m.Image.GetImage() != "sha256:1" ||
		m.Image.GetUserSpecifiedImage() != "img:1" || m.HostPath != "" || len(p.Volumes) != 1 {
		t.Errorf("volumes %+v", p.Volumes)
	}
	if len(p.Images) != 2 || !p.Images["a"].Ready || !p.Images["c"].Ready ||
		p.Waiting["b"] != (status.Reason{Reason: "ImagePullBackOff", Message: "no img:2"}) || len(p.Waiting) != 1 {
		t.Errorf("images %+v, waiting %+v", p.Images, p.Waiting)
	}
	s.asks, why = nil, "the runtime is old"
	if _, err := step.Ensure(t.Context(), p); err != nil || s.asks != nil ||
		p.Waiting["a"] != (status.Reason{
			Reason: "CreateContainerConfigError", Message: `volume "good": the runtime is old`,
		}) {
		t.Errorf("asked for %q, waiting %+v, %v", s.asks, p.Waiting, err)
	}
}
