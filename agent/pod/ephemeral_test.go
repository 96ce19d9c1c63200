package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/node/room"
	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/telemetry/events"
	"github.com/berthd/berth/configs"
)

// decoded returns the pod of a manifest.
func decoded(t *testing.T, manifest string) *v1.Pod {
	t.Helper()
	items := source.Decoder{NodeName: "n"}.Decode("/m/web.yaml", []byte(manifest))
	if len(items) != 1 || items[0].Pod == nil {
		t.Fatalf("items %+v", items)
	}
	return items[0].Pod
}

// tools is a container that looks into pods.
func tools(name string) *v1.EphemeralContainer {
	return &v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name, Image: "tools"}}
}

// holdingTo returns an engine of a node that admits pods by a Pod Security Standard, and has no
// more than that needs. The feature gates in off are off.
func holdingTo(t *testing.T, level configs.PodSecurityLevel, off ...string) *Engine {
	t.Helper()
	cfg, _, err := configs.Load(configs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.RootDir, cfg.Berth.PodSecurity = t.TempDir(), level
	cfg.Kubelet.FeatureGates = map[string]bool{}
	for _, gate := range off {
		cfg.Kubelet.FeatureGates[gate] = false
	}
	n, err := node.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	deps := Deps{
		Telemetry: Telemetry{Events: events.New("n")}, Desired: nothingWanted{},
		Node: Node{Node: n, Room: room.New(room.Deps{Node: n.Admission, Allocatable: n.Allocatable})},
	}
	e := &Engine{deps: deps, ephemerals: &ephemerals{}}
	e.resizer = &resizer{deps: &e.deps, ephemerals: e.ephemerals}
	return e
}

// nothingWanted are sources that have no pods.
type nothingWanted struct{ Desired }

func (nothingWanted) File(types.UID) string { return "" }

// syncOf returns a sync of a pod with that record. Its save returns save.
func (e *Engine) syncOf(work worker.Work, rec *checkpoint.Record, save error) *podSync {
	return &podSync{work: work, Sync: &steps.Sync{Given: steps.Given{
		Pod:    e.ephemerals.with(work.Pod),
		Record: rec,
		Log:    slog.New(slog.DiscardHandler),
		Save:   func() error { return save },
	}}}
}

// asked makes a sync that meets a request for an ephemeral container. It returns the request's
// answer.
func (e *Engine) asked(
	work worker.Work, rec *checkpoint.Record, save error, c *v1.EphemeralContainer,
) (*steps.Sync, error) {
	s := e.syncOf(work, rec, save)
	r := ephemeralRequest{container: c, done: make(chan error, 1)}
	e.ephemerals.ask(work.UID, r)
	e.addEphemeral(s.Sync, work)
	return s.Sync, <-r.done
}

func TestAddEphemeral(t *testing.T) {
	pod := decoded(t,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: m}]}\n")
	a, rec := holdingTo(t, configs.PodSecurityPrivileged), &checkpoint.Record{}
	work := worker.Work{UID: pod.UID, Pod: pod, Phase: worker.Running}
	names := func(p *v1.Pod) (out []string) {
		for _, c := range p.Spec.EphemeralContainers {
			out = append(out, c.Name)
		}
		return out
	}

	full := errors.New("no space left on device")
	if p, err := a.asked(work, rec, full, tools("one")); !errors.Is(err, full) || len(rec.Ephemeral) != 0 ||
		p.Pod != pod {
		t.Errorf("what could not be saved was added: %v, %v", err, rec.Ephemeral)
	}
	if p, err := a.asked(work, rec, nil, tools("one")); err != nil || len(names(p.Pod)) != 1 ||
		len(rec.Ephemeral) != 1 {
		t.Errorf("added: %v, %v", err, names(p.Pod))
	}
	if _, err := a.asked(work, rec, nil, tools("one")); !errors.Is(err, ErrInvalid) || len(rec.Ephemeral) != 1 {
		t.Errorf("the same name again: %v", err)
	}
	if p, err := a.asked(work, rec, nil, tools("two")); err != nil || len(names(p.Pod)) != 2 ||
		p.Pod != a.ephemerals.with(pod) {
		t.Errorf("another one: %v, %v", err, names(p.Pod))
	}
	if len(pod.Spec.EphemeralContainers) != 0 {
		t.Error("the source's pod was changed")
	}

	// The source's pod changes: an API server may know one of the containers by now.
	edited := pod.DeepCopy()
	edited.Spec.EphemeralContainers = append(edited.Spec.EphemeralContainers, rec.Ephemeral[1])
	if got := names(a.ephemerals.with(edited)); len(got) != 2 || got[0] != "two" || got[1] != "one" {
		t.Errorf("after an edit: %v", got)
	}

	work.Phase = worker.Terminating
	if _, err := a.asked(work, rec, nil, tools("late")); !errors.Is(err, ErrOver) {
		t.Errorf("a pod that ends: %v", err)
	}
	r := ephemeralRequest{done: make(chan error, 1)}
	a.ephemerals.ask(pod.UID, r)
	a.ephemerals.drop(pod.UID)
	if err := <-r.done; !errors.Is(err, ErrOver) {
		t.Errorf("a pod that is gone: %v", err)
	}
	if got := a.ephemerals.with(pod); got != pod {
		t.Errorf("after its end it has %v", names(got))
	}

	// Another run of the agent.
	a.ephemerals.set(pod.UID, rec.Ephemeral)
	if got := names(a.ephemerals.with(pod)); len(got) != 2 {
		t.Errorf("restored: %v", got)
	}
}

// TestAddEphemeralInAResize: a resize may begin in the same sync as an ephemeral container. The
// record that is saved with the container has the resize, too. So the next agent resizes the pod if
// this one is killed right after the save.
func TestAddEphemeralInAResize(t *testing.T) {
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: m, " +
		"resources: {requests: {cpu: %s}}}]}\n"
	before, wanted := decoded(t, fmt.Sprintf(text, "100m")), decoded(t, fmt.Sprintf(text, "200m"))
	wanted.UID = before.UID
	cpu := func(p *v1.Pod) string { return p.Spec.Containers[0].Resources.Requests.Cpu().String() }
	names := func(list []v1.EphemeralContainer) (out string) {
		for _, c := range list {
			out += c.Name + " "
		}
		return out
	}
	a := holdingTo(t, configs.PodSecurityPrivileged)
	rec := &checkpoint.Record{Pod: before, Admitted: true}
	var saved []byte
	work := worker.Work{UID: wanted.UID, Pod: wanted, Phase: worker.Running}
	p := a.syncOf(work, rec, nil)
	p.Save = func() (err error) {
		saved, err = json.Marshal(p.Record)
		return err
	}
	r := ephemeralRequest{container: tools("shell"), done: make(chan error, 1)}
	a.ephemerals.ask(wanted.UID, r)
	if _, err := a.noteWanted(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	if cpu(p.Pod) != "100m" || names(p.Pod.Spec.EphemeralContainers) != "shell " {
		t.Errorf("the sync is about cpu %s and %s", cpu(p.Pod), names(p.Pod.Spec.EphemeralContainers))
	}

	next := holdingTo(t, configs.PodSecurityPrivileged)
	rec = &checkpoint.Record{}
	if err := json.Unmarshal(saved, rec); err != nil {
		t.Fatal(err)
	}
	next.ephemerals.set(wanted.UID, rec.Ephemeral)
	p = next.syncOf(work, rec, nil)
	if _, err := next.noteWanted(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if rec.Resize == nil || cpu(p.Pod) != "100m" || cpu(rec.Pod) != "200m" ||
		names(p.Pod.Spec.EphemeralContainers) != "shell " {
		t.Errorf("after a kill: resize %+v, allocated %s, wanted %s, with %s", rec.Resize, cpu(p.Pod), cpu(rec.Pod),
			names(p.Pod.Spec.EphemeralContainers))
	}
}

// A container that is added must meet what the node asks of pods.
func TestAddEphemeralIsAdmitted(t *testing.T) {
	pod := decoded(t,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: m}]}\n")
	yes := true
	privileged := tools("root")
	privileged.SecurityContext = &v1.SecurityContext{Privileged: &yes}
	for level, want := range map[configs.PodSecurityLevel]string{
		configs.PodSecurityPrivileged: "",
		configs.PodSecurityBaseline: `PodSecurity: violates PodSecurity "baseline:latest": privileged (container ` +
			`"root" must not set securityContext.privileged=true)`,
	} {
		rec := &checkpoint.Record{}
		_, err := holdingTo(t, level).asked(worker.Work{UID: pod.UID, Pod: pod, Phase: worker.Running}, rec, nil,
			privileged)
		switch {
		case want == "" && err != nil,
			want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want)):
			t.Errorf("under %s: %v", level, err)
		case (len(rec.Ephemeral) == 1) != (want == ""):
			t.Errorf("under %s the record has %v", level, rec.Ephemeral)
		}
	}
}
