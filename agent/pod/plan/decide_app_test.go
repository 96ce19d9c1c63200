package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestDecideApp(t *testing.T) {
	check(t, Decide, []example{
		{name: "first start", pod: "Always a:a a:b", saw: "S0 ready", want: "start[a#0 b#0] initialized"},
		{name: "second is missing", pod: "Always a:a a:b", saw: "S0 ready,a#0 running", want: "start[b#0] initialized"},
		{name: "Always exit 0", pod: "Always a:a", saw: "S0 ready,a#0 exited 0", want: "start[a#1] initialized"},
		{name: "Always exit 1", pod: "Always a:a", saw: "S0 ready,a#0 exited 1", want: "start[a#1] initialized"},
		{name: "OnFailure exit 0", pod: "OnFailure a:a", saw: "S0 ready,a#0 exited 0", want: "finished"},
		{name: "OnFailure exit 1", pod: "OnFailure a:a", saw: "S0 ready,a#0 exited 1", want: "start[a#1] initialized"},
		{name: "Never exit 0", pod: "Never a:a", saw: "S0 ready,a#0 exited 0", want: "finished"},
		{name: "Never exit 1", pod: "Never a:a", saw: "S0 ready,a#0 exited 1", want: "finished"},
		{
			name: "Never, one runs on", pod: "Never a:a a:b",
			saw: "S0 ready,a#0 exited 1,b#0 running", want: "initialized",
		},
		{
			name: "Never, one was never made", pod: "Never a:a a:b", saw: "S0 ready,a#0 exited 1",
			want: "start[b#0] initialized",
		},
		{
			name: "OnFailure, one of two", pod: "OnFailure a:a a:b",
			saw: "S0 ready,a#0 exited 0,b#3 exited 2", want: "start[b#4] initialized",
		},
		{
			name: "own policy beats the pod's", pod: "Never a:a=Always a:b=OnFailure a:c",
			saw:  "S0 ready,a#0 exited 0,b#0 exited 1,c#0 exited 1",
			want: "start[a#1 b#1] initialized",
		},
		{
			name: "own policy ends the pod", pod: "Always a:a=Never a:b=OnFailure",
			saw: "S0 ready,a#0 exited 1,b#0 exited 0", want: "finished",
		},
		{name: "rule restarts", pod: "Never a:a=Never", saw: "S0 ready,a#0 exited 42", with: func(in *Input) {
			in.Pod.Spec.Containers[0].RestartPolicyRules = rules(v1.ContainerRestartRuleOnExitCodesOpIn, 42)
		}, want: "start[a#1] initialized"},
		{name: "rule of other codes", pod: "Never a:a=Never", saw: "S0 ready,a#0 exited 42", with: func(in *Input) {
			in.Pod.Spec.Containers[0].RestartPolicyRules = rules(v1.ContainerRestartRuleOnExitCodesOpNotIn, 42)
		}, want: "finished"},
		{name: "rule without codes", pod: "Never a:a=Never", saw: "S0 ready,a#0 exited 42", with: func(in *Input) {
			in.Pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{}}
		}, want: "finished"},
		{
			name: "rule of an unknown operator",
			pod:  "Never a:a=Never",
			saw:  "S0 ready,a#0 exited 42",
			with: func(in *Input) {
				in.Pod.Spec.Containers[0].RestartPolicyRules = rules("Sometimes", 42)
			},
			want: "finished",
		},

		{
			name: "created leftover is made again", pod: "Always a:a", saw: "S0 ready,a#0 created",
			want: "remove[a#0] start[a#0] initialized",
		},
		{
			name: "created leftover of a restart", pod: "Always a:a",
			saw: "S0 ready,a#0 exited 1,a#1 created", want: "remove[a#1] start[a#1] initialized",
		},
		{
			name: "created leftover, Never", pod: "Never a:a", saw: "S0 ready,a#0 created",
			want: "remove[a#0] start[a#0] initialized",
		},
		{
			name: "created leftover that the status had seen", pod: "Always a:a",
			saw: "S0 ready,a#1 created", with: floor("a", 2),
			want: "remove[a#1] start[a#1] initialized",
		},
		{
			name: "created leftover far below the status", pod: "Always a:a",
			saw: "S0 ready,a#1 created", with: floor("a", 9),
			want: "remove[a#1] start[a#9] initialized",
		},
		{
			name: "created leftover is gone", pod: "Always a:a", saw: "S0 ready,a#4 exited 1", with: floor("a", 5),
			want: "start[a#5] initialized",
		},
		{
			name: "created leftover in a lost sandbox", pod: "Always a:a",
			saw: "S0 lost,a#0 created", want: "stop[S0] create#1 remove[a#0] start[a#0]",
		},
		{
			name: "created one is busy", pod: "Always a:a", saw: "S0 ready,a#0 created", with: busy("a#0", PostStart),
			want: "initialized",
		},
		{
			name: "unknown is killed first", pod: "Always a:a", saw: "S0 ready,a#0 unknown",
			want: "kill[a#0:unknown] initialized",
		},
		{
			name: "unknown is killed first, Never", pod: "Never a:a", saw: "S0 ready,a#0 unknown",
			want: "kill[a#0:unknown] initialized",
		},

		{
			name: "spec changed", pod: "Always a:a a:b", saw: "S0 ready,a#0 running!,b#0 running",
			want: "kill[a#0:changed] initialized",
		},
		{
			name: "spec changed, being stopped", pod: "Always a:a", saw: "S0 ready,a#0 running!",
			with: busy("a#0", Stopping), want: "initialized",
		},
		{
			name: "spec changed, Never, killed for it", pod: "Never a:a",
			saw:  "S0 ready,a#0 exited! 0",
			with: func(in *Input) { in.KilledToRestart = map[string]bool{"a#0": true} },
			want: "start[a#1] initialized",
		},
		{
			name: "spec changed of what ended", pod: "Never a:a a:b",
			saw: "S0 ready,a#0 exited! 0,b#0 running", want: "initialized",
		},
		{
			name: "a stop that has begun goes on", pod: "Always a:a a:b",
			saw: "S0 ready,a#0 running,b#0 running", with: begun("a#0"),
			want: "kill[a#0:begun] initialized",
		},
		{
			name: "a stop that has begun is under way", pod: "Always a:a",
			saw: "S0 ready,a#0 running", with: all(begun("a#0"), busy("a#0", Stopping)),
			want: "initialized",
		},
		{
			name: "a stop that has begun goes on, for any reason", pod: "Always a:a",
			saw: "S0 ready,a#0 running!", with: begun("a#0"), want: "kill[a#0:begun] initialized",
		},
		{
			name: "a stop that has begun, unknown", pod: "Always a:a", saw: "S0 ready,a#0 unknown",
			with: begun("a#0"), want: "kill[a#0:begun] initialized",
		},
		{
			name: "a stop that is over", pod: "Always a:a", saw: "S0 ready,a#0 exited 1", with: begun("a#0"),
			want: "start[a#1] initialized",
		},
		{
			name: "a stop that has begun keeps the pod", pod: "Never a:a a:b",
			saw: "S0 ready,a#0 exited 1,b#0 running", with: begun("b#0"),
			want: "kill[b#0:begun] initialized",
		},
		{
			name: "no hash says nothing", pod: "Always a:a", saw: "S0 ready,a#0 running!",
			with: func(in *Input) { in.Observed.Containers[0].Hash = "" }, want: "initialized",
		},
		{
			name: "liveness failed", pod: "Always a:a", saw: "S0 ready,a#1 running",
			with: probed("a", "a#1", "Liveness", true), want: "kill[a#1:liveness] initialized",
		},
		{
			name: "liveness failed, Never", pod: "Never a:a", saw: "S0 ready,a#1 running",
			with: probed("a", "a#1", "Liveness", true), want: "kill[a#1:liveness] initialized",
		},
		{
			name: "startup failed", pod: "Always a:a", saw: "S0 ready,a#1 running",
			with: probed("a", "a#1", "Startup", false), want: "kill[a#1:startup] initialized",
		},
		{
			name: "an earlier attempt's probe", pod: "Always a:a", saw: "S0 ready,a#1 running",
			with: probed("a", "a#0", "Liveness", true), want: "initialized",
		},
		{
			name: "liveness failed during postStart", pod: "Always a:a",
			saw: "S0 ready,a#1 running", with: all(probed("a", "a#1", "Liveness", true), busy("a#1", PostStart)),
			want: "initialized",
		},
		{
			name: "liveness failed of what ended", pod: "Never a:a a:b",
			saw: "S0 ready,a#1 exited 1,b#0 running", with: probed("a", "a#1", "Liveness", true),
			want: "initialized",
		},

		{
			name: "postStart holds back those behind", pod: "Always a:a a:b a:c",
			saw: "S0 ready,a#0 running,b#0 running", with: busy("b#0", PostStart),
			want: "initialized",
		},
		{
			name: "postStart does not hold back those before", pod: "Always a:a a:b",
			saw: "S0 ready,a#0 exited 1,b#0 running", with: busy("b#0", PostStart),
			want: "start[a#1] initialized",
		},
		{
			name: "postStart holds back a restart", pod: "Always a:a a:b",
			saw: "S0 ready,a#0 running,b#0 exited 1", with: busy("a#0", PostStart),
			want: "initialized",
		},
		{
			name: "postStart of what ended keeps the pod", pod: "Never a:a",
			saw: "S0 ready,a#0 exited 1", with: busy("a#0", PostStart), want: "initialized",
		},
		{
			name: "stopping keeps the pod", pod: "Never a:a", saw: "S0 ready,a#0 exited 1",
			with: busy("a#0", Stopping), want: "initialized",
		},
		{
			name: "stopping does not hold back those behind", pod: "Always a:a a:b",
			saw: "S0 ready,a#0 running", with: busy("a#0", Stopping),
			want: "start[b#0] initialized",
		},

		{name: "no back-off yet", pod: "Always a:a", saw: "S0 ready,a#0 exited 1 1s", want: "start[a#1] initialized"},
		{
			name: "back-off", pod: "Always a:a a:b", saw: "S0 ready,a#1 exited 1 4s",
			with: backedOff("a", 10*time.Second, 20*time.Second),
			want: "start[b#0] wait[a#2+6s] initialized",
		},
		{
			name: "back-off is over", pod: "Always a:a", saw: "S0 ready,a#1 exited 1 10s",
			with: backedOff("a", 10*time.Second, 20*time.Second), want: "start[a#2] initialized",
		},
		{
			name: "back-off forgotten", pod: "Always a:a", saw: "S0 ready,a#1 exited 1 1s",
			with: backedOff("a", 300*time.Second, 602*time.Second), want: "start[a#2] initialized",
		},
		{
			name: "back-off longer than the limit of now", pod: "Always a:a",
			saw: "S0 ready,a#1 exited 1 4s",
			with: all(backedOff("a", 300*time.Second,
				20*time.Second), func(in *Input) { in.Limits.Max = 15 * time.Second }),
			want: "wait[a#2+11s] initialized",
		},
		{
			name: "back-off despite a created leftover", pod: "Always a:a",
			saw: "S0 ready,a#1 exited 1 4s,a#2 created", with: backedOff("a", 10*time.Second, 20*time.Second),
			want: "remove[a#2] wait[a#2+6s] initialized",
		},
		{
			name: "back-off in a new sandbox", pod: "Always a:a", saw: "S0 lost,a#1 exited 1 4s",
			with: backedOff("a", 10*time.Second, 20*time.Second),
			want: "stop[S0] create#1 wait[a#2+6s]",
		},
		{
			name: "waiting keeps the pod", pod: "OnFailure a:a a:b",
			saw: "S0 ready,a#1 exited 1 4s,b#0 exited 0", with: backedOff("a", 10*time.Second, 20*time.Second),
			want: "wait[a#2+6s] initialized",
		},
		{
			name: "clock was put back", pod: "Always a:a", saw: "S0 ready,a#1 exited 1 -9000h",
			with: backedOff("a", 10*time.Second, 20*time.Second), want: "start[a#2] initialized",
		},
		{
			name: "end without a time", pod: "Always a:a", saw: "S0 ready,a#1 exited 255",
			with: all(backedOff("a", 10*time.Second,
				20*time.Second), func(in *Input) { in.Observed.Containers[0].FinishedAt = 0 }),
			want: "start[a#2] initialized",
		},
	})
}

func rules(op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []v1.ContainerRestartRule {
	return []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes},
	}}
}
