package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/worker"
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

// holdingTo returns an agent that holds pods to a Pod Security Standard, and has no more than that needs; these feature gates are off.
func holdingTo(t *testing.T, level configs.PodSecurityLevel, off ...string) *Agent {
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
	return &Agent{node: n}
}

// asked makes a pass that meets a request for an ephemeral container, and returns what it was answered.
func (a *Agent) asked(work worker.Work, rec *checkpoint.Record, save error, c *v1.EphemeralContainer) (*steps.Pass, error) {
	p := &steps.Pass{Pod: a.ephemerals.with(work.Pod), Record: rec, Log: slog.New(slog.DiscardHandler), Save: func() error { return save }}
	r := ephemeralRequest{container: c, done: make(chan error, 1)}
	a.ephemerals.ask(work.UID, r)
	a.addEphemeral(p, work)
	return p, <-r.done
}

func TestAddEphemeral(t *testing.T) {
	pod := decoded(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: m}]}\n")
	a, rec := holdingTo(t, configs.PodSecurityPrivileged), &checkpoint.Record{}
	work := worker.Work{UID: pod.UID, Pod: pod, Phase: worker.Running}
	names := func(p *v1.Pod) (out []string) {
		for _, c := range p.Spec.EphemeralContainers {
			out = append(out, c.Name)
		}
		return out
	}

	full := errors.New("no space left on device")
	if p, err := a.asked(work, rec, full, tools("one")); !errors.Is(err, full) || len(rec.Ephemeral) != 0 || p.Pod != pod {
		t.Errorf("what could not be saved was added: %v, %v", err, rec.Ephemeral)
	}
	if p, err := a.asked(work, rec, nil, tools("one")); err != nil || len(names(p.Pod)) != 1 || len(rec.Ephemeral) != 1 {
		t.Errorf("added: %v, %v", err, names(p.Pod))
	}
	if _, err := a.asked(work, rec, nil, tools("one")); !errors.Is(err, server.ErrInvalid) || len(rec.Ephemeral) != 1 {
		t.Errorf("the same name again: %v", err)
	}
	if p, err := a.asked(work, rec, nil, tools("two")); err != nil || len(names(p.Pod)) != 2 || p.Pod != a.ephemerals.with(pod) {
		t.Errorf("another one: %v, %v", err, names(p.Pod))
	}
	if len(pod.Spec.EphemeralContainers) != 0 {
		t.Error("the source's pod was changed")
	}

	// The source's pod changes; an API server may know of one of them by now.
	edited := pod.DeepCopy()
	edited.Spec.EphemeralContainers = append(edited.Spec.EphemeralContainers, rec.Ephemeral[1])
	if got := names(a.ephemerals.with(edited)); len(got) != 2 || got[0] != "two" || got[1] != "one" {
		t.Errorf("after an edit: %v", got)
	}

	work.Phase = worker.Terminating
	if _, err := a.asked(work, rec, nil, tools("late")); !errors.Is(err, server.ErrPodOver) {
		t.Errorf("a pod that ends: %v", err)
	}
	r := ephemeralRequest{done: make(chan error, 1)}
	a.ephemerals.ask(pod.UID, r)
	a.ephemerals.drop(pod.UID)
	if err := <-r.done; !errors.Is(err, server.ErrPodOver) {
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

// TestAddEphemeralInAResize: the record that an ephemeral container is saved with has the resize that begins in the same pass, so that an agent that is killed right
// after that save is followed by one that resizes the pod.
func TestAddEphemeralInAResize(t *testing.T) {
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: m, resources: {requests: {cpu: %s}}}]}\n"
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
	p := &steps.Pass{Pod: wanted, Record: rec, Log: slog.New(slog.DiscardHandler)}
	p.Save = func() (err error) {
		saved, err = json.Marshal(p.Record)
		return err
	}
	r := ephemeralRequest{container: tools("shell"), done: make(chan error, 1)}
	a.ephemerals.ask(wanted.UID, r)
	work := worker.Work{UID: wanted.UID, Pod: wanted, Phase: worker.Running}
	a.takeNotice(p, work)
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	if cpu(p.Pod) != "100m" || names(p.Pod.Spec.EphemeralContainers) != "shell " {
		t.Errorf("the pass is about cpu %s and %s", cpu(p.Pod), names(p.Pod.Spec.EphemeralContainers))
	}

	next := holdingTo(t, configs.PodSecurityPrivileged)
	rec = &checkpoint.Record{}
	if err := json.Unmarshal(saved, rec); err != nil {
		t.Fatal(err)
	}
	next.ephemerals.set(wanted.UID, rec.Ephemeral)
	p = &steps.Pass{Pod: next.ephemerals.with(wanted), Record: rec, Log: p.Log, Save: func() error { return nil }}
	next.takeNotice(p, work)
	if rec.Resize == nil || cpu(p.Pod) != "100m" || cpu(rec.Pod) != "200m" || names(p.Pod.Spec.EphemeralContainers) != "shell " {
		t.Errorf("after a kill: resize %+v, allocated %s, wanted %s, with %s", rec.Resize, cpu(p.Pod), cpu(rec.Pod), names(p.Pod.Spec.EphemeralContainers))
	}
}

// A container that is added is held to what the node asks of pods.
func TestAddEphemeralIsAdmitted(t *testing.T) {
	pod := decoded(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: m}]}\n")
	yes := true
	privileged := tools("root")
	privileged.SecurityContext = &v1.SecurityContext{Privileged: &yes}
	for level, want := range map[configs.PodSecurityLevel]string{
		configs.PodSecurityPrivileged: "",
		configs.PodSecurityBaseline:   `PodSecurity: violates PodSecurity "baseline:latest": privileged (container "root" must not set securityContext.privileged=true)`,
	} {
		rec := &checkpoint.Record{}
		_, err := holdingTo(t, level).asked(worker.Work{UID: pod.UID, Pod: pod, Phase: worker.Running}, rec, nil, privileged)
		switch {
		case want == "" && err != nil, want != "" && (!errors.Is(err, server.ErrInvalid) || !strings.Contains(err.Error(), want)):
			t.Errorf("under %s: %v", level, err)
		case (len(rec.Ephemeral) == 1) != (want == ""):
			t.Errorf("under %s the record has %v", level, rec.Ephemeral)
		}
	}
}
