package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// asking is a container that, with exit code 42, restarts all containers.
func asking(name string) podOption {
	return container(v1.Container{
		Name: name, Image: "img", RestartPolicy: ptr(v1.ContainerRestartPolicyNever),
		RestartPolicyRules: []v1.ContainerRestartRule{{
			Action: v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42},
			},
		}},
	})
}

func TestRestartingAllContainers(t *testing.T) {
	pod := newPod(policy(v1.RestartPolicyNever), inits("init"), asking("source"), regular("other"))
	in := Input{
		Pod:        pod,
		Sandbox:    sandbox(0),
		Now:        at(5),
		Containers: facts(exited("init", 0, 0, 0), running("source", 0, 2), running("other", 0, 2)),
	}
	s := Derive(in)
	expect := func(when string, phase v1.PodPhase, restarting v1.ConditionStatus) {
		t.Helper()
		c := condition(s.Conditions, v1.AllContainersRestarting)
		if s.Phase != phase || c == nil || c.Status != restarting {
			t.Errorf("%s: phase %s, condition %+v", when, s.Phase, c)
		}
		if c := condition(s.Conditions, v1.PodInitialized); c.Status != v1.ConditionTrue {
			t.Errorf("%s: a pod that was initialized is %+v", when, c)
		}
	}
	expect("all run", v1.PodRunning, v1.ConditionFalse)

	in.RestartingAll, in.Removed = true, map[string]bool{"init": true, "source": true, "other": true}
	in.Previous, in.Containers = &s,
		facts(exited("init", 0, 0, 0), exited("source", 0, 2, 42), exited("other", 0, 2, 137))
	s = Derive(in)
	expect("all ended, by policy for good", v1.PodRunning, v1.ConditionTrue)
	if c := condition(s.Conditions, v1.AllContainersRestarting); c.Reason != "RestartAllContainersStarted" ||
		c.Message != "container exited with restart policy rule" {
		t.Errorf("condition %+v", c)
	}

	previous := s
	in.Previous, in.Containers = &previous, facts(exited("source", 0, 2, 42))
	s = Derive(in)
	expect("some are removed", v1.PodPending, v1.ConditionTrue)
	other := find(s.ContainerStatuses, "other")
	if w := other.State.Waiting; w == nil || w.Reason != "RestartingAllContainers" ||
		other.LastTerminationState.Terminated.ExitCode != 137 {
		t.Errorf("a removed container is %+v", other)
	}

	removed := s
	in.Previous, in.Containers, in.RestartingAll = &removed, nil, false
	s = Derive(in)
	expect("all are removed", v1.PodPending, v1.ConditionFalse)
	if init := find(s.InitContainerStatuses, "init"); init.State.Waiting == nil ||
		init.LastTerminationState.Terminated.Reason != "Completed" {
		t.Errorf("a removed init container is %+v", init)
	}
	if source := find(s.ContainerStatuses, "source"); source.State.Waiting.Reason != ReasonPodInitializing ||
		source.LastTerminationState.Terminated.ExitCode != 42 {
		t.Errorf("who asked is %+v", source)
	}

	again := s
	in.Previous, in.Removed = &again, nil
	in.Containers = facts(exited("init", 1, 6, 0), running("source", 1, 7), running("other", 1, 7))
	s = Derive(in)
	expect("all run again", v1.PodRunning, v1.ConditionFalse)
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		if c.RestartCount != 1 || c.LastTerminationState.Terminated == nil {
			t.Errorf("container %s: restarts %d, last %+v", c.Name, c.RestartCount, c.LastTerminationState)
		}
	}
}

func TestRemovedWhileItRan(t *testing.T) {
	pod := newPod(asking("source"))
	s := Derive(Input{Pod: pod, Sandbox: sandbox(0), Now: at(5), Containers: facts(running("source", 2, 2))})
	s = Derive(Input{
		Pod:        pod,
		Sandbox:    sandbox(0),
		Now:        at(6),
		Previous:   &s,
		Restarting: Restarting{RestartingAll: true, Removed: map[string]bool{"source": true}},
	})
	c := s.ContainerStatuses[0]
	if last := c.LastTerminationState.Terminated; last == nil || last.Reason != "RestartingAllContainers" ||
		last.ExitCode != 137 || c.RestartCount != 2 {
		t.Errorf("status %+v", c)
	}
}

func TestNoConditionWithoutSuchARule(t *testing.T) {
	s := Derive(Input{Pod: newPod(), Sandbox: sandbox(0), Now: at(5), Containers: facts(running("main", 0, 2))})
	if c := condition(s.Conditions, v1.AllContainersRestarting); c != nil {
		t.Errorf("condition %+v", c)
	}
}

// A container that was killed because of a probe is restarted. Its exit code 0 does not make the
// pod Succeeded.
func TestContainerToBeKilledDoesNotEndThePod(t *testing.T) {
	in := Input{
		Pod:        newPod(policy(v1.RestartPolicyOnFailure)),
		Sandbox:    sandbox(0),
		Now:        at(5),
		Containers: facts(exited("main", 0, 2, 0)),
	}
	if s := Derive(in); s.Phase != v1.PodSucceeded {
		t.Fatalf("phase %s without a probe", s.Phase)
	}
	in.Killed = map[string]bool{containerRuntimeID("main", 0): true}
	in.Waiting = map[string]Reason{"main": {Reason: "CrashLoopBackOff"}}
	s := Derive(in)
	if s.Phase != v1.PodRunning || s.ContainerStatuses[0].State.Waiting == nil {
		t.Errorf("phase %s, state %+v", s.Phase, s.ContainerStatuses[0].State)
	}
}

// TestContainerToBeKilledNeverLooksEnded follows a container that is killed to be restarted. The
// API server refuses a status in which the container comes back after an end that its policy does
// not restart, and every later status. So such an end may only appear as the last state.
func TestContainerToBeKilledNeverLooksEnded(t *testing.T) {
	for name, c := range map[string]struct {
		policy v1.RestartPolicy
		code   int32
		ends   bool
	}{
		"OnFailure, well":  {v1.RestartPolicyOnFailure, 0, false},
		"OnFailure, badly": {v1.RestartPolicyOnFailure, 143, true},
		"Never":            {v1.RestartPolicyNever, 143, false},
		"Always":           {v1.RestartPolicyAlways, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{
				Pod:        newPod(policy(c.policy)),
				Sandbox:    sandbox(0),
				Now:        at(5),
				Containers: facts(exited("main", 0, 2, c.code)),
			}
			in.Killed = map[string]bool{containerRuntimeID("main", 0): true}
			s := Derive(in)
			main := s.ContainerStatuses[0]
			if (main.State.Terminated != nil) != c.ends || s.Phase != v1.PodRunning {
				t.Errorf("phase %s, state %+v", s.Phase, main.State)
			}
			if !c.ends &&
				(main.State.Waiting.Reason != "ContainerCreating" || main.LastTerminationState.Terminated == nil ||
					main.LastTerminationState.Terminated.ExitCode != c.code) {
				t.Errorf("waits with %+v, last %+v", main.State.Waiting, main.LastTerminationState)
			}
			in.Previous, in.Containers = &s, facts(exited("main", 0, 2, c.code), running("main", 1, 7))
			if main := Derive(in).ContainerStatuses[0]; main.State.Running == nil || main.RestartCount != 1 ||
				main.LastTerminationState.Terminated.ExitCode != c.code {
				t.Errorf("runs again as %+v", main)
			}
			in.Terminating, in.Containers = true, facts(exited("main", 0, 2, c.code))
			if main := Derive(in).ContainerStatuses[0]; main.State.Terminated == nil {
				t.Errorf("of a pod that ends: %+v", main.State)
			}
		})
	}
}

func TestStopSignal(t *testing.T) {
	for signal, want := range map[runtimeapi.Signal]v1.Signal{
		runtimeapi.Signal_RUNTIME_DEFAULT: "",
		runtimeapi.Signal_SIGUSR1:         v1.SIGUSR1,
		runtimeapi.Signal_SIGRTMINPLUS3:   v1.SIGRTMINPLUS3,
		runtimeapi.Signal_SIGRTMAXMINUS14: v1.SIGRTMAXMINUS14,
	} {
		c := running("main", 0, 2)
		c.StopSignal = signal
		s := Derive(Input{Pod: newPod(), Sandbox: sandbox(0), Now: at(5), Containers: facts(c)})
		if got := s.ContainerStatuses[0].StopSignal; (got == nil) != (want == "") || got != nil && *got != want {
			t.Errorf("%s: %v, want %q", signal, got, want)
		}
	}
}
