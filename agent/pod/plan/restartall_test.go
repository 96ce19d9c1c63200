package plan

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// asks gives containers a rule that starts all of the pod's containers again after exit code 42.
func asks(names ...string) func(*Input) {
	return func(in *Input) {
		for _, name := range names {
			c, _ := FindContainer(in.Pod, name)
			if c.RestartPolicy == nil {
				never := v1.ContainerRestartPolicyNever
				c.RestartPolicy = &never
			}
			c.RestartPolicyRules = []v1.ContainerRestartRule{{
				Action: v1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
					Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42},
				},
			}}
		}
	}
}

func both(changes ...func(*Input)) func(*Input) {
	return func(in *Input) {
		for _, change := range changes {
			change(in)
		}
	}
}

func restarting(in *Input) { in.RestartingAll = true }

// TestRestartAll checks what KEP-5532 says of a restart of all containers.
func TestRestartAll(t *testing.T) {
	const pod = "Never i:i s:s a:a a:b e:d"
	check(t, Decide, []example{
		{
			name: "nobody asks",
			pod:  pod,
			with: asks("a"),
			saw:  "S0 ready,i#0 exited 0,s#0 running,a#0 running,b#0 exited 0,d#0 exited 0",
			want: "initialized",
		},
		{
			name: "another exit code does not ask",
			pod:  pod,
			with: asks("a"),
			saw:  "S0 ready,i#0 exited 0,s#0 running,a#0 exited 1,b#0 running,d#0 exited 0",
			want: "initialized",
		},
		{
			name: "what runs is killed and what ended removed", pod: pod, with: asks("a"),
			saw:  "S0 ready,i#0 exited 0,s#0 running,a#0 exited 42,b#0 running,d#0 running",
			want: "remove[i#0] kill[s#0:restartAll b#0:restartAll]",
		},
		{
			name: "a stop under way has to be quick now", pod: pod, with: both(asks("a"), busy("b#0", Stopping)),
			saw: "S0 ready,a#0 exited 42,b#0 running", want: "kill[b#0:restartAll]",
		},
		{
			name: "who asked is removed last", pod: pod, with: both(asks("a"), restarting),
			saw: "S0 ready,a#1 exited 42,a#0 exited 1,b#0 exited 137", want: "remove[a#0 b#0]",
		},
		{
			name: "then it, too", pod: pod, with: both(asks("a"), restarting),
			saw: "S0 ready,a#0 exited 42,d#0 exited 0", want: "remove[a#0]",
		},
		{
			name: "a remembered restart goes on without who asked", pod: pod, with: both(asks("a"), restarting),
			saw: "S0 ready,s#0 running,b#0 created", want: "remove[b#0] kill[s#0:restartAll]",
		},
		{
			name: "then the pod begins anew",
			pod:  pod,
			with: both(asks("a"), restarting, floor("i", 1)),
			saw:  "S0 ready,d#0 exited 0",
			want: "start[i#1]",
		},
		{
			name: "a sidecar asks", pod: pod, with: asks("s"),
			saw:  "S0 ready,i#0 exited 0,s#0 exited 42,a#0 running",
			want: "remove[i#0] kill[a#0:restartAll]",
		},
		{name: "an init container asks", pod: pod, with: asks("i"), saw: "S0 ready,i#0 exited 42", want: "remove[i#0]"},
		{
			name: "only its last attempt asks", pod: pod, with: asks("s"),
			saw:  "S0 ready,i#0 exited 0,s#1 running,s#0 exited 42,a#0 running,b#0 running,d#0 running",
			want: "initialized",
		},
		{
			name: "a lost sandbox comes after",
			pod:  pod,
			with: asks("a"),
			saw:  "S0 lost,i#0 exited 0,s#0 running,a#0 exited 42",
			want: "remove[i#0] kill[s#0:restartAll]",
		},
		{
			name: "the new start waits",
			pod:  pod,
			saw:  "S0 ready,d#0 running",
			with: func(in *Input) {
				in.Hold = &Hold{Until: now.Add(7 * time.Second), Delay: 10 * time.Second, By: "a"}
			},
			want: "wait[a#0+7s]",
		},
		{
			name: "not for longer than its delay",
			pod:  pod,
			saw:  "S0 ready,d#0 running",
			with: func(in *Input) { in.Hold = &Hold{Until: now.Add(time.Hour), Delay: 10 * time.Second, By: "a"} },
			want: "start[i#0]",
		},
		{
			name: "an ephemeral container does not wait",
			pod:  pod,
			saw:  "S0 ready",
			with: func(in *Input) {
				in.Hold = &Hold{Until: now.Add(7 * time.Second), Delay: 10 * time.Second, By: "a"}
			},
			want: "start[d#0] wait[a#0+7s]",
		},
	})
}

// TestFirstRuleCounts checks KEP-5307's order of rules.
func TestFirstRuleCounts(t *testing.T) {
	rule := func(action v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator,
		codes ...int32,
	) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{
			Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes},
		}
	}
	const (
		in, notIn    = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
		restart, all = v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers
	)
	never := v1.ContainerRestartPolicyNever
	for _, e := range []struct {
		rules  []v1.ContainerRestartRule
		policy *v1.ContainerRestartPolicy
		want   string
	}{
		{[]v1.ContainerRestartRule{rule(restart, in, 42), rule(all, in, 42)}, &never, "start[a#1] initialized"},
		{[]v1.ContainerRestartRule{rule(all, in, 42), rule(restart, in, 42)}, &never, "remove[a#0]"},
		{[]v1.ContainerRestartRule{rule(all, in, 41), rule(restart, notIn, 41)}, &never, "start[a#1] initialized"},
		{[]v1.ContainerRestartRule{rule(restart, notIn, 42), {Action: restart}}, &never, "finished"},
		{[]v1.ContainerRestartRule{rule(restart, in, 42)}, nil, "finished"},
	} {
		input := example{pod: "Never a:a", saw: "S0 ready,a#0 exited 42"}.input(t)
		c := &input.Pod.Spec.Containers[0]
		c.RestartPolicy, c.RestartPolicyRules = e.policy, e.rules
		if got := summary(Decide(input)); got != e.want {
			t.Errorf("%+v: got %s, want %s", e.rules, got, e.want)
		}
	}
}

// TestKilledToRestart checks that a container killed because of a probe starts again, whatever it
// ended with.
func TestKilledToRestart(t *testing.T) {
	killed := func(in *Input) { in.KilledToRestart = map[string]bool{"a#0": true} }
	check(t, Decide, []example{
		{
			name: "it ended well", pod: "OnFailure a:a", saw: "S0 ready,a#0 exited 0", with: killed,
			want: "start[a#1] initialized",
		},
		{
			name: "another attempt ended well", pod: "OnFailure a:a",
			saw: "S0 ready,a#1 exited 0,a#0 exited 0", with: killed, want: "remove[a#0] finished",
		},
		{
			name: "the sandbox is lost then", pod: "OnFailure a:a", saw: "S0 lost,a#0 exited 0", with: killed,
			want: "stop[S0] create#1 start[a#1]",
		},
	})
	for _, e := range []struct {
		pod, failed string
		again       bool
	}{
		{"Always a:a", "Liveness", true},
		{"OnFailure a:a", "Startup", true},
		{"Never a:a", "Liveness", false},
		{"Never a:a=OnFailure", "Startup", true},
	} {
		in := example{pod: e.pod, saw: "S0 ready,a#0 running", with: probed("a", "a#0", e.failed, true)}.input(t)
		if a := Decide(in); len(a.Kill) != 1 || a.Kill[0].Again != e.again {
			t.Errorf("%s, %s failed: %+v", e.pod, strings.ToLower(e.failed), a.Kill)
		}
	}
}

func TestCleanExitsFree(t *testing.T) {
	free := func(in *Input) {
		in.Limits.CleanExitsFree = true
		in.Backoff = map[string]Backoff{"a": {Delay: time.Minute, Set: now.Add(-time.Minute)}}
		for _, c := range in.Observed.Containers {
			c.StartedAt = c.FinishedAt - int64(300*time.Millisecond)
		}
	}
	check(t, Decide, []example{
		{
			name: "it waits for nothing", pod: "Always a:a", saw: "S0 ready,a#0 exited 0 2s", with: free,
			want: "start[a#1] initialized",
		},
		{
			name: "but for a second between starts", pod: "Always a:a",
			saw: "S0 ready,a#0 exited 0 0s", with: free, want: "wait[a#1+700ms] initialized",
		},
		{
			name: "a crash is a crash", pod: "Always a:a", saw: "S0 ready,a#0 exited 1 2s", with: free,
			want: "wait[a#1+58s] initialized",
		},
	})
}
