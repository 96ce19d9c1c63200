package agent

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/cluster/kube"
	apifake "github.com/berthd/berth/agent/cluster/kube/fake"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/internal/pods"
)

// joined is an agent of a cluster whose API server, runtime and time are fake.
type joined struct {
	t    *testing.T
	dir  string
	rt   *fake.Runtime
	api  *apifake.Server
	from source.Source
	*Agent
	end     func()
	options func(*configs.Config)
}

// join gives fn an agent in a cluster, whose static pods are from a manifest. It takes the agent
// down afterwards.
func join(t *testing.T, from manifest, fn func(t *testing.T, j *joined)) {
	t.Helper()
	joinFrom(t, from, fn)
}

// joinFrom is join for any source of static pods.
func joinFrom(t *testing.T, from source.Source, fn func(t *testing.T, j *joined)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		j := &joined{t: t, dir: t.TempDir(), rt: fake.New(fake.Config{WriteLogs: true}), api: apifake.New(), from: from}
		j.start()
		defer j.api.Close()
		defer func() { j.end() }()
		fn(t, j)
	})
}

// start starts an agent. Further agents use the same folders.
func (j *joined) start() {
	conn := j.api.Conn(kube.Config{ContentType: "application/vnd.kubernetes.protobuf", QPS: 50, Burst: 100})
	a, end := liveWith(j.t, j.dir, j.rt, j.from, Deps{Cluster: &cluster.Connection{Conn: conn}}, j.options)
	j.Agent, j.end = a, func() {
		end()
		conn.CloseConnections()
		synctest.Wait()
	}
}

// bind makes a pod in the API that is bound to the node, with the API server's defaults.
func (j *joined) bind(name string, change ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: v1.PodSpec{
		NodeName:                      "node",
		RestartPolicy:                 v1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: ptr.To[int64](30),
		DNSPolicy:                     v1.DNSDefault,
		SecurityContext:               &v1.PodSecurityContext{},
		EnableServiceLinks:            ptr.To(true),
		Containers: []v1.Container{{
			Name:                     "app",
			Image:                    "app",
			ImagePullPolicy:          v1.PullIfNotPresent,
			TerminationMessagePath:   "/dev/termination-log",
			TerminationMessagePolicy: v1.TerminationMessageReadFile,
		}},
	}, Status: v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort}}
	for _, c := range change {
		c(pod)
	}
	return j.api.Put(apifake.Pods, pod).(*v1.Pod)
}

// change changes a pod in the API as a user does.
func (j *joined) change(name string, change func(*v1.Pod)) {
	j.t.Helper()
	pod := j.api.Pod("ns", name)
	change(pod)
	pod.Generation++
	j.api.Put(apifake.Pods, pod)
}

// runs returns the pods as "name phase".
func (j *joined) runs() string {
	synctest.Wait()
	var out []string
	for _, p := range j.Pods() {
		out = append(out, p.Name+" "+string(p.Status.Phase))
	}
	return strings.Join(out, ", ")
}

func (j *joined) wantRuns(what, want string) {
	j.t.Helper()
	if got := j.runs(); got != want {
		j.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// calls counts the calls of one kind to the runtime.
func (j *joined) calls(method string) int { return len(j.rt.Calls(method)) }

const staticWeb = manifest(
	`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: app}]}}`)

func TestPodsOfTheAPIRunBesideStaticOnes(t *testing.T) {
	join(t, staticWeb, func(t *testing.T, j *joined) {
		pod := j.bind("a")
		j.bind("elsewhere", func(p *v1.Pod) { p.Spec.NodeName = "other" })
		time.Sleep(10 * time.Second)
		j.wantRuns("bound", "web-node Running, a Running")
		for _, p := range j.Pods() {
			if p.Name == "a" && (p.UID != pod.UID || p.Annotations[pods.AnnotationSource] != pods.SourceAPI) {
				t.Errorf("uid %s, annotations %v", p.UID, p.Annotations)
			}
		}
	})
}

func TestDeletedPodsEndWithTheirGrace(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.rt.Script("app", fake.Behavior{Term: fake.Term{Ignore: true}})
		j.bind("a")
		time.Sleep(5 * time.Second)
		j.api.Delete(apifake.Pods, "ns", "a", ptr.To[int64](100))
		time.Sleep(50 * time.Second)
		j.wantRuns("within its grace", "a Running")
		j.api.Delete(apifake.Pods, "ns", "a", ptr.To[int64](10)) // a shorter one counts
		time.Sleep(8 * time.Second)
		j.wantRuns("within the shorter one", "a Running")
		time.Sleep(5 * time.Second)
		if got := j.runs(); strings.Contains(got, "Running") {
			t.Errorf("after its grace: %s", got)
		}
	})
}

func TestForcedDeletionEndsAPod(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.bind("a")
		time.Sleep(5 * time.Second)
		j.api.Delete(apifake.Pods, "ns", "a", ptr.To[int64](0))
		time.Sleep(40 * time.Second)
		j.wantRuns("deleted", "")
	})
}

// Running pods go on running whatever happens to the API server, and static pods start without it.
func TestAPIServerAway(t *testing.T) {
	join(t, staticWeb, func(t *testing.T, j *joined) {
		j.bind("a")
		time.Sleep(5 * time.Second)
		j.api.Stop()
		time.Sleep(5 * time.Minute)
		j.wantRuns("away", "web-node Running, a Running")
		j.end()
		j.start()
		time.Sleep(5 * time.Minute)
		j.wantRuns("away from the start", "web-node Running, a Running")
		j.bind("b")
		zero := int64(0)
		j.api.Delete(apifake.Pods, "ns", "a", &zero)
		j.api.Start()
		time.Sleep(40 * time.Second)
		j.wantRuns("back", "web-node Running, b Running")
		if n := j.calls("StartContainer"); n != 3 {
			t.Errorf("%d containers were started, want 3", n)
		}
	})
}

// A node that starts without its API server makes no pod anew that may have been made elsewhere,
// unless it is asked to. Once it can read, it makes the pods.
func TestLastKnownPods(t *testing.T) {
	for _, run := range []bool{false, true} {
		join(t, staticWeb, func(t *testing.T, j *joined) {
			j.bind("a")
			j.bind("deleted")
			time.Sleep(5 * time.Second)
			j.end()
			j.api.Stop()
			j.rt.Reboot()
			j.options = func(c *configs.Config) { c.Berth.RunLastKnownPods = run }
			before := j.calls("RunPodSandbox")
			j.start()
			time.Sleep(5 * time.Minute)
			want := 1 // the static one
			if run {
				want = 3
			}
			if n := j.calls("RunPodSandbox") - before; n != want {
				t.Errorf("runLastKnownPods %v: %d sandboxes were made, want %d", run, n, want)
			}
			j.api.Delete(apifake.Pods, "ns", "deleted", ptr.To[int64](0))
			j.api.Start()
			time.Sleep(45 * time.Second)
			j.wantRuns("back", "web-node Running, a Running")
			if n := j.calls("RunPodSandbox") - before; !run && n != 2 {
				t.Errorf("in the end %d sandboxes were made", n)
			}
		})
	}
}

// A shutdown is reported: the node is not ready, and its pods have ended.
func TestShutdownIsReported(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.rt.Script("app", fake.Behavior{Term: fake.Term{Code: 143}})
		j.bind("a")
		time.Sleep(5 * time.Second)
		if err := j.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		s := j.api.Pod("ns", "a").Status
		if s.Phase != v1.PodFailed || s.Reason != "Terminated" {
			t.Errorf("%s %s", s.Phase, s.Reason)
		}
		wantDisrupted(t, &s, "Pod was terminated in response to imminent node shutdown.")
		time.Sleep(2 * time.Second)
		for _, c := range j.api.Get(apifake.Nodes, "", "node").(*v1.Node).Status.Conditions {
			if c.Type == v1.NodeReady && (c.Status != v1.ConditionFalse || c.Message != "node is shutting down") {
				t.Errorf("%+v", c)
			}
		}
	})
}

// wantDisrupted checks that a status says that the node stopped the pod for the node's own sake.
func wantDisrupted(t *testing.T, s *v1.PodStatus, message string) {
	t.Helper()
	for _, c := range s.Conditions {
		if c.Type == v1.DisruptionTarget {
			if c.Status != v1.ConditionTrue || c.Reason != "TerminationByKubelet" || c.Message != message {
				t.Errorf("%+v", c)
			}
			return
		}
	}
	t.Errorf("no DisruptionTarget among %+v", s.Conditions)
}

// A pod that is bound after another was deleted by force waits for what the other one still has. It
// does not fail.
func TestRoomOfPodsDeletedByForceIsWaitedFor(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		port := func(p *v1.Pod) {
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{
				ContainerPort: 80,
				HostPort:      8080,
				Protocol:      v1.ProtocolTCP,
			}}
		}
		j.rt.Script("app", fake.Behavior{Term: fake.Term{After: 20 * time.Second}})
		j.bind("a", port)
		time.Sleep(5 * time.Second)
		j.api.Delete(apifake.Pods, "ns", "a", ptr.To[int64](0))
		j.bind("b", port)
		time.Sleep(15 * time.Second)
		if s := j.api.Pod("ns", "b").Status; s.Phase != v1.PodPending {
			t.Errorf("beside one that is leaving: %s %s %s", s.Phase, s.Reason, s.Message)
		}
		time.Sleep(10 * time.Second)
		j.wantRuns("in its place", "b Running")
	})
}

// Deletions of pods are confirmed while the node is drained, also of pods that came meanwhile and
// have never run.
func TestDeletedWhileDrained(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.bind("a")
		time.Sleep(5 * time.Second)
		if err := j.Drain(api.DrainRequest{Hold: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s := j.api.Pod("ns", "a").Status
		wantDisrupted(t, &s, "Pod was stopped to drain the node.")
		j.bind("late")
		time.Sleep(5 * time.Second)
		for _, name := range []string{"a", "late"} {
			j.api.Delete(apifake.Pods, "ns", name, ptr.To[int64](30))
			time.Sleep(5 * time.Second)
			if p := j.api.Pod("ns", name); p != nil {
				t.Errorf("pod %s is still there: %s", name, p.Status.Phase)
			}
		}
		if n := j.calls("RunPodSandbox"); n != 1 || j.Drained().State != api.Drained {
			t.Errorf("%d sandboxes were made, the node is %s", n, j.Drained().State)
		}
	})
}

func TestNodeStartsWithoutAnAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &joined{
			t:    t,
			dir:  t.TempDir(),
			rt:   fake.New(fake.Config{WriteLogs: true}),
			api:  apifake.New(),
			from: staticWeb,
		}
		j.api.Stop()
		j.start()
		defer j.api.Close()
		defer func() { j.end() }()
		time.Sleep(10 * time.Second)
		j.wantRuns("never there", "web-node Running")
	})
}

// A new image, a resize and an ephemeral container change a pod while it runs. The pod is not
// replaced.
func TestSpecsChangeInPlace(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.bind("a", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
		})
		time.Sleep(5 * time.Second)
		j.change("a", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("200m")
		})
		time.Sleep(5 * time.Second)
		if n, updates := j.calls("StartContainer"), j.calls("UpdateContainerResources"); n != 1 || updates == 0 {
			t.Errorf("resized: %d starts, %d updates", n, updates)
		}
		j.change("a", func(p *v1.Pod) {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers,
				v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{
					Name: "debug", Image: "app",
				}})
		})
		time.Sleep(5 * time.Second)
		if n := j.calls("StartContainer"); n != 2 {
			t.Errorf("with an ephemeral container: %d starts", n)
		}
		j.change("a", func(p *v1.Pod) { p.Spec.Containers[0].Image = "other" })
		time.Sleep(60 * time.Second)
		if n, sandboxes := j.calls("StartContainer"), j.calls("RunPodSandbox"); n != 3 || sandboxes != 1 {
			t.Errorf("with another image: %d starts, %d sandboxes", n, sandboxes)
		}
		j.change("a", func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](200) })
		time.Sleep(3 * time.Minute)
		if got := j.Pods()[0].Status; got.Reason != "DeadlineExceeded" {
			t.Errorf("past its deadline: %s %s", got.Phase, got.Reason)
		}
	})
}

// Pods that ended, or are deleted, before this node ever saw them do not run.
func TestWhatIsOverDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &joined{
			t:    t,
			dir:  t.TempDir(),
			rt:   fake.New(fake.Config{WriteLogs: true}),
			api:  apifake.New(),
			from: manifest(""),
		}
		j.bind("ended", func(p *v1.Pod) { p.Status.Phase = v1.PodFailed })
		j.bind("deleted")
		j.api.Delete(apifake.Pods, "ns", "deleted", nil)
		j.start()
		defer j.api.Close()
		defer func() { j.end() }()
		time.Sleep(10 * time.Second)
		if n := j.calls("RunPodSandbox"); n != 0 {
			t.Errorf("%d sandboxes were made", n)
		}
	})
}

func TestMirrorPodsAreNotRun(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.bind("m", func(p *v1.Pod) { p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} })
		time.Sleep(5 * time.Second)
		j.wantRuns("a mirror", "")
	})
}

func TestPodRecreatedUnderItsNameWaitsForItsPredecessor(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.rt.Script("app", fake.Behavior{Term: fake.Term{Ignore: true}})
		first := j.bind("a")
		time.Sleep(5 * time.Second)
		j.api.Delete(apifake.Pods, "ns", "a", ptr.To[int64](0))
		j.bind("a")
		time.Sleep(5 * time.Second)
		pods := j.Pods()
		if n := j.calls("RunPodSandbox"); n != 1 ||
			!slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == first.UID }) {
			t.Errorf("%d sandboxes were made while the first pod was ending", n)
		}
		time.Sleep(40 * time.Second)
		j.wantRuns("afterwards", "a Running")
	})
}
