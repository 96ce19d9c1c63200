package plan

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// example is one row of a decision table.
type example struct {
	name string
	pod  string
	// saw are the lines of what was observed, separated by commas.
	saw  string
	with func(*Input)
	want string
}

func (e example) input(t *testing.T) Input {
	t.Helper()
	in := Input{Pod: parsePod(t, e.pod), Hash: hashOf, Limits: DefaultBackoffLimits(), Now: now}
	if e.saw != "" {
		in.Observed = parseObserved(t, strings.Split(e.saw, ",")...)
	}
	if e.with != nil {
		e.with(&in)
	}
	return in
}

func check(t *testing.T, decide func(Input) Actions, examples []example) {
	t.Helper()
	for _, e := range examples {
		t.Run(strings.ReplaceAll(e.name, " ", "_"), func(t *testing.T) {
			in := e.input(t)
			if got := summary(decide(in)); got != e.want {
				t.Errorf("pod %q, observed %q:\n got %s\nwant %s", e.pod, e.saw, got, e.want)
			}
		})
	}
}

func busy(id string, op Operation) func(*Input) {
	return func(in *Input) { in.Busy = map[string]Operation{id: op} }
}

func begun(ids ...string) func(*Input) {
	return func(in *Input) {
		in.Stops = map[string]ContainerStop{}
		for _, id := range ids {
			in.Stops[id] = ContainerStop{Since: now, Grace: time.Minute}
		}
	}
}

func probed(name, id, failed string, started bool) func(*Input) {
	return func(in *Input) {
		in.Probes = map[string]ProbeState{name: {ContainerID: id, Started: started, Failed: failed}}
	}
}

func floor(name string, n uint32) func(*Input) {
	return func(in *Input) { in.RestartFloor = map[string]uint32{name: n} }
}

func endedWith(codes map[string]int32) func(*Input) {
	return func(in *Input) { in.Ended = codes }
}

func initializedIn(id string) func(*Input) {
	return func(in *Input) { in.InitializedIn = id }
}

func backedOff(name string, delay, setAgo time.Duration) func(*Input) {
	return func(in *Input) { in.Backoff = map[string]Backoff{name: {Delay: delay, Set: now.Add(-setAgo)}} }
}

func all(with ...func(*Input)) func(*Input) {
	return func(in *Input) {
		for _, w := range with {
			w(in)
		}
	}
}

func TestDecideSandbox(t *testing.T) {
	check(t, Decide, []example{
		{name: "new pod", pod: "Always a:a a:b", want: "create#0 start[a#0 b#0]"},
		{name: "new pod with init", pod: "Always i:i a:a", want: "create#0 start[i#0]"},
		{name: "new pod with sidecar", pod: "Always s:s i:i a:a", want: "create#0 start[s#0]"},
		{name: "up", pod: "Always a:a", saw: "S0 ready,a#0 running", want: "initialized"},
		{name: "lost", pod: "Always a:a", saw: "S0 lost", want: "stop[S0] create#1 start[a#0]"},
		{name: "lost with running", pod: "Always a:a a:b", saw: "S0 lost,a#0 running,b#2 running", want: "kill[b#2:pod a#0:pod]"},
		{name: "lost, being stopped", pod: "Always a:a", saw: "S0 lost,a#0 running", with: busy("a#0", Stopping), want: ""},
		{name: "lost while postStart runs", pod: "Always a:a", saw: "S0 lost,a#0 running", with: busy("a#0", PostStart), want: "kill[a#0:pod]"},
		{name: "lost with unknown", pod: "Always a:a", saw: "S0 lost,a#0 unknown", want: "kill[a#0:pod]"},
		{name: "lost, sidecars go last", pod: "Always s:s i:i s:u a:a", saw: "S0 lost,s#0 running,u#0 running,a#0 running", want: "kill[a#0:pod] held[s#0 u#0]"},
		{name: "lost, sidecars in reverse", pod: "Always s:s i:i s:u a:a", saw: "S0 lost,s#0 running,u#0 running,a#0 exited 0", want: "kill[u#0:pod] held[s#0]"},
		{name: "lost with ended", pod: "Always a:a", saw: "S0 lost,a#0 exited 1", want: "stop[S0] create#1 start[a#1]"},
		{name: "gone, container running", pod: "Always a:a", saw: "a#3 running", want: "kill[a#3:pod]"},
		{name: "gone, container ended", pod: "Always a:a", saw: "a#3 exited 0", want: "create#0 start[a#4]"},
		{name: "two ready", pod: "Always a:a", saw: "S0 ready,S1 ready", want: "stop[S1 S0] create#2 start[a#0]"},
		{name: "two ready, one used", pod: "Always a:a", saw: "S0 ready,a#0 running,S1 ready", want: "kill[a#0:pod]"},
		{name: "older one ready", pod: "Always a:a", saw: "S0 ready,S1 lost", want: "stop[S1 S0] create#2 start[a#0]"},
		{name: "no address", pod: "Always a:a", saw: "S0 bare", want: "stop[S0] create#1 start[a#0]"},
		{name: "no network reported", pod: "Always a:a", saw: "S0 bare", with: func(in *Input) { in.Observed.Sandboxes[0].Network = nil }, want: "start[a#0] initialized"},
		{name: "host network", pod: "Always host: a:a", saw: "S0 host", want: "start[a#0] initialized"},
		{name: "became host network", pod: "Always host: a:a", saw: "S0 ready,a#0 running", want: "kill[a#0:pod]"},
		{name: "ceased to be host network", pod: "Always a:a", saw: "S0 host", want: "stop[S0] create#1 start[a#0]"},
		{name: "old ones are removed", pod: "Always a:a", saw: "S0 lost,S1 lost,S2 ready,a#2 running", want: "removeSandbox[S1 S0] initialized"},
		{name: "old one holds the last end", pod: "Always a:a", saw: "S0 lost,a#0 exited 1,S1 ready,a#1 running", want: "initialized"},
		{name: "old one holds an older end", pod: "Always a:a", saw: "S0 lost,a#0 exited 1,S1 ready,a#1 exited 1,a#2 running", want: "remove[a#0] removeSandbox[S0] initialized"},
		{name: "the latest is never removed", pod: "Always a:a", saw: "S4 lost", want: "stop[S4] create#5 start[a#0]"},
		{name: "stray in an old sandbox", pod: "Always a:a", saw: "S0 lost,a#0 running,S1 ready", want: "kill[a#0:stray] initialized"},
		{name: "stray in an old sandbox, being stopped", pod: "Always a:a", saw: "S0 lost,a#0 running,S1 ready", with: busy("a#0", Stopping), want: "initialized"},
		{name: "stray init in an old sandbox", pod: "Always i:i a:a", saw: "S0 lost,i#0 running,S1 ready", want: "kill[i#0:stray]"},
		{name: "two instances run", pod: "Always a:a", saw: "S0 ready,a#0 running,a#1 running", want: "kill[a#0:stray] initialized"},
		{name: "an older instance runs, the latest ended", pod: "Always a:a", saw: "S0 ready,a#0 unknown,a#1 exited 1", want: "kill[a#0:stray] initialized"},
	})
}

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
		{name: "Never, one runs on", pod: "Never a:a a:b", saw: "S0 ready,a#0 exited 1,b#0 running", want: "initialized"},
		{name: "Never, one was never made", pod: "Never a:a a:b", saw: "S0 ready,a#0 exited 1", want: "start[b#0] initialized"},
		{name: "OnFailure, one of two", pod: "OnFailure a:a a:b", saw: "S0 ready,a#0 exited 0,b#3 exited 2", want: "start[b#4] initialized"},
		{name: "own policy beats the pod's", pod: "Never a:a=Always a:b=OnFailure a:c", saw: "S0 ready,a#0 exited 0,b#0 exited 1,c#0 exited 1", want: "start[a#1 b#1] initialized"},
		{name: "own policy ends the pod", pod: "Always a:a=Never a:b=OnFailure", saw: "S0 ready,a#0 exited 1,b#0 exited 0", want: "finished"},
		{name: "rule restarts", pod: "Never a:a=Never", saw: "S0 ready,a#0 exited 42", with: func(in *Input) {
			in.Pod.Spec.Containers[0].RestartPolicyRules = rules(v1.ContainerRestartRuleOnExitCodesOpIn, 42)
		}, want: "start[a#1] initialized"},
		{name: "rule of other codes", pod: "Never a:a=Never", saw: "S0 ready,a#0 exited 42", with: func(in *Input) {
			in.Pod.Spec.Containers[0].RestartPolicyRules = rules(v1.ContainerRestartRuleOnExitCodesOpNotIn, 42)
		}, want: "finished"},
		{name: "rule without codes", pod: "Never a:a=Never", saw: "S0 ready,a#0 exited 42", with: func(in *Input) {
			in.Pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{}}
		}, want: "finished"},
		{name: "rule of an unknown operator", pod: "Never a:a=Never", saw: "S0 ready,a#0 exited 42", with: func(in *Input) {
			in.Pod.Spec.Containers[0].RestartPolicyRules = rules("Sometimes", 42)
		}, want: "finished"},

		{name: "created leftover is made again", pod: "Always a:a", saw: "S0 ready,a#0 created", want: "remove[a#0] start[a#0] initialized"},
		{name: "created leftover of a restart", pod: "Always a:a", saw: "S0 ready,a#0 exited 1,a#1 created", want: "remove[a#1] start[a#1] initialized"},
		{name: "created leftover, Never", pod: "Never a:a", saw: "S0 ready,a#0 created", want: "remove[a#0] start[a#0] initialized"},
		{name: "created leftover that the status had seen", pod: "Always a:a", saw: "S0 ready,a#1 created", with: floor("a", 2), want: "remove[a#1] start[a#1] initialized"},
		{name: "created leftover far below the status", pod: "Always a:a", saw: "S0 ready,a#1 created", with: floor("a", 9), want: "remove[a#1] start[a#9] initialized"},
		{name: "created leftover is gone", pod: "Always a:a", saw: "S0 ready,a#4 exited 1", with: floor("a", 5), want: "start[a#5] initialized"},
		{name: "created leftover in a lost sandbox", pod: "Always a:a", saw: "S0 lost,a#0 created", want: "stop[S0] create#1 remove[a#0] start[a#0]"},
		{name: "created one is busy", pod: "Always a:a", saw: "S0 ready,a#0 created", with: busy("a#0", PostStart), want: "initialized"},
		{name: "unknown is killed first", pod: "Always a:a", saw: "S0 ready,a#0 unknown", want: "kill[a#0:unknown] initialized"},
		{name: "unknown is killed first, Never", pod: "Never a:a", saw: "S0 ready,a#0 unknown", want: "kill[a#0:unknown] initialized"},

		{name: "spec changed", pod: "Always a:a a:b", saw: "S0 ready,a#0 running!,b#0 running", want: "kill[a#0:changed] initialized"},
		{name: "spec changed, being stopped", pod: "Always a:a", saw: "S0 ready,a#0 running!", with: busy("a#0", Stopping), want: "initialized"},
		{name: "spec changed, Never, killed for it", pod: "Never a:a", saw: "S0 ready,a#0 exited! 0", with: func(in *Input) { in.Condemned = map[string]bool{"a#0": true} }, want: "start[a#1] initialized"},
		{name: "spec changed of what ended", pod: "Never a:a a:b", saw: "S0 ready,a#0 exited! 0,b#0 running", want: "initialized"},
		{name: "a stop that has begun goes on", pod: "Always a:a a:b", saw: "S0 ready,a#0 running,b#0 running", with: begun("a#0"), want: "kill[a#0:begun] initialized"},
		{name: "a stop that has begun is under way", pod: "Always a:a", saw: "S0 ready,a#0 running", with: all(begun("a#0"), busy("a#0", Stopping)), want: "initialized"},
		{name: "a stop that has begun goes on, for any reason", pod: "Always a:a", saw: "S0 ready,a#0 running!", with: begun("a#0"), want: "kill[a#0:begun] initialized"},
		{name: "a stop that has begun, unknown", pod: "Always a:a", saw: "S0 ready,a#0 unknown", with: begun("a#0"), want: "kill[a#0:begun] initialized"},
		{name: "a stop that is over", pod: "Always a:a", saw: "S0 ready,a#0 exited 1", with: begun("a#0"), want: "start[a#1] initialized"},
		{name: "a stop that has begun keeps the pod", pod: "Never a:a a:b", saw: "S0 ready,a#0 exited 1,b#0 running", with: begun("b#0"), want: "kill[b#0:begun] initialized"},
		{name: "no hash says nothing", pod: "Always a:a", saw: "S0 ready,a#0 running!", with: func(in *Input) { in.Observed.Containers[0].Hash = "" }, want: "initialized"},
		{name: "liveness failed", pod: "Always a:a", saw: "S0 ready,a#1 running", with: probed("a", "a#1", "Liveness", true), want: "kill[a#1:liveness] initialized"},
		{name: "liveness failed, Never", pod: "Never a:a", saw: "S0 ready,a#1 running", with: probed("a", "a#1", "Liveness", true), want: "kill[a#1:liveness] initialized"},
		{name: "startup failed", pod: "Always a:a", saw: "S0 ready,a#1 running", with: probed("a", "a#1", "Startup", false), want: "kill[a#1:startup] initialized"},
		{name: "an earlier incarnation's probe", pod: "Always a:a", saw: "S0 ready,a#1 running", with: probed("a", "a#0", "Liveness", true), want: "initialized"},
		{name: "liveness failed during postStart", pod: "Always a:a", saw: "S0 ready,a#1 running", with: all(probed("a", "a#1", "Liveness", true), busy("a#1", PostStart)), want: "initialized"},
		{name: "liveness failed of what ended", pod: "Never a:a a:b", saw: "S0 ready,a#1 exited 1,b#0 running", with: probed("a", "a#1", "Liveness", true), want: "initialized"},

		{name: "postStart holds back those behind", pod: "Always a:a a:b a:c", saw: "S0 ready,a#0 running,b#0 running", with: busy("b#0", PostStart), want: "initialized"},
		{name: "postStart does not hold back those before", pod: "Always a:a a:b", saw: "S0 ready,a#0 exited 1,b#0 running", with: busy("b#0", PostStart), want: "start[a#1] initialized"},
		{name: "postStart holds back a restart", pod: "Always a:a a:b", saw: "S0 ready,a#0 running,b#0 exited 1", with: busy("a#0", PostStart), want: "initialized"},
		{name: "postStart of what ended keeps the pod", pod: "Never a:a", saw: "S0 ready,a#0 exited 1", with: busy("a#0", PostStart), want: "initialized"},
		{name: "stopping keeps the pod", pod: "Never a:a", saw: "S0 ready,a#0 exited 1", with: busy("a#0", Stopping), want: "initialized"},
		{name: "stopping does not hold back those behind", pod: "Always a:a a:b", saw: "S0 ready,a#0 running", with: busy("a#0", Stopping), want: "start[b#0] initialized"},

		{name: "no back-off yet", pod: "Always a:a", saw: "S0 ready,a#0 exited 1 1s", want: "start[a#1] initialized"},
		{name: "back-off", pod: "Always a:a a:b", saw: "S0 ready,a#1 exited 1 4s", with: backedOff("a", 10*time.Second, 20*time.Second), want: "start[b#0] wait[a#2+6s] initialized"},
		{name: "back-off is over", pod: "Always a:a", saw: "S0 ready,a#1 exited 1 10s", with: backedOff("a", 10*time.Second, 20*time.Second), want: "start[a#2] initialized"},
		{name: "back-off forgotten", pod: "Always a:a", saw: "S0 ready,a#1 exited 1 1s", with: backedOff("a", 300*time.Second, 602*time.Second), want: "start[a#2] initialized"},
		{name: "back-off longer than the limit of now", pod: "Always a:a", saw: "S0 ready,a#1 exited 1 4s", with: all(backedOff("a", 300*time.Second, 20*time.Second), func(in *Input) { in.Limits.Max = 15 * time.Second }), want: "wait[a#2+11s] initialized"},
		{name: "back-off despite a created leftover", pod: "Always a:a", saw: "S0 ready,a#1 exited 1 4s,a#2 created", with: backedOff("a", 10*time.Second, 20*time.Second), want: "remove[a#2] wait[a#2+6s] initialized"},
		{name: "back-off in a new sandbox", pod: "Always a:a", saw: "S0 lost,a#1 exited 1 4s", with: backedOff("a", 10*time.Second, 20*time.Second), want: "stop[S0] create#1 wait[a#2+6s]"},
		{name: "waiting keeps the pod", pod: "OnFailure a:a a:b", saw: "S0 ready,a#1 exited 1 4s,b#0 exited 0", with: backedOff("a", 10*time.Second, 20*time.Second), want: "wait[a#2+6s] initialized"},
		{name: "clock was put back", pod: "Always a:a", saw: "S0 ready,a#1 exited 1 -9000h", with: backedOff("a", 10*time.Second, 20*time.Second), want: "start[a#2] initialized"},
		{name: "end without a time", pod: "Always a:a", saw: "S0 ready,a#1 exited 255", with: all(backedOff("a", 10*time.Second, 20*time.Second), func(in *Input) { in.Observed.Containers[0].FinishedAt = 0 }), want: "start[a#2] initialized"},
	})
}

func rules(op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []v1.ContainerRestartRule {
	return []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes},
	}}
}

func TestDecideInit(t *testing.T) {
	const pod = "Always i:i i:j a:a"
	check(t, Decide, []example{
		{name: "first", pod: pod, saw: "S0 ready", want: "start[i#0]"},
		{name: "first at work", pod: pod, saw: "S0 ready,i#0 running", want: ""},
		{name: "first done", pod: pod, saw: "S0 ready,i#0 exited 0", want: "start[j#0]"},
		{name: "both done", pod: pod, saw: "S0 ready,i#0 exited 0,j#0 exited 0", want: "start[a#0] initialized"},
		{name: "first failed", pod: pod, saw: "S0 ready,i#0 exited 1", want: "start[i#1]"},
		{name: "first failed, back-off", pod: pod, saw: "S0 ready,i#1 exited 1 3s", with: backedOff("i", 10*time.Second, 9*time.Second), want: "wait[i#2+7s]"},
		{name: "second failed, first stays done", pod: pod, saw: "S0 ready,i#0 exited 0,j#0 exited 1", want: "start[j#1]"},
		{name: "second failed, first's record gone", pod: pod, saw: "S0 ready,j#0 exited 1", want: "start[j#1]"},
		{name: "OnFailure", pod: "OnFailure i:i a:a", saw: "S0 ready,i#0 exited 1", want: "start[i#1]"},
		{name: "Never", pod: "Never i:i a:a", saw: "S0 ready,i#0 exited 1", want: "finished"},
		{name: "Never, being stopped", pod: "Never i:i a:a", saw: "S0 ready,i#0 exited 137", with: busy("i#0", Stopping), want: ""},
		{name: "Never, done", pod: "Never i:i a:a", saw: "S0 ready,i#0 exited 0", want: "start[a#0] initialized"},
		{name: "Never, sidecar beside a failure", pod: "Never s:s i:i a:a", saw: "S0 ready,s#0 exited 1,i#0 exited 1", want: "finished"},
		{name: "own policy Never", pod: "Always i:i=Never a:a", saw: "S0 ready,i#0 exited 1", want: "finished"},
		{name: "own policy OnFailure", pod: "Never i:i=OnFailure a:a", saw: "S0 ready,i#0 exited 1", want: "start[i#1]"},
		{name: "created leftover", pod: pod, saw: "S0 ready,i#0 created", want: "remove[i#0] start[i#0]"},
		{name: "created leftover of the second", pod: pod, saw: "S0 ready,i#0 exited 0,j#0 created", want: "remove[j#0] start[j#0]"},
		{name: "unknown", pod: pod, saw: "S0 ready,i#0 unknown", want: "kill[i#0:unknown]"},
		{name: "unknown, being stopped", pod: pod, saw: "S0 ready,i#0 unknown", with: busy("i#0", Stopping), want: ""},
		{name: "changed spec is no matter", pod: pod, saw: "S0 ready,i#0 running!", want: ""},

		{name: "records gone, app runs", pod: pod, saw: "S0 ready,a#0 running", want: "initialized"},
		{name: "records gone, app ended", pod: pod, saw: "S0 ready,a#0 exited 1", want: "start[a#1] initialized"},
		{name: "records gone, app created", pod: pod, saw: "S0 ready,a#0 created", want: "remove[a#0] start[a#0] initialized"},
		{name: "records gone, noted", pod: pod, saw: "S0 ready", with: initializedIn("S0"), want: "start[a#0] initialized"},
		{name: "noted for another sandbox", pod: pod, saw: "S1 ready", with: initializedIn("S0"), want: "start[i#0]"},
		{name: "noted, no sandbox", pod: pod, with: initializedIn("S0"), want: "create#0 start[i#0]"},
		{name: "a failure after it was noted is no matter", pod: pod, saw: "S0 ready,j#0 exited 1,a#0 running", with: initializedIn("S0"), want: "initialized"},

		{name: "new sandbox runs them again", pod: pod, saw: "S0 lost,i#0 exited 0,j#0 exited 0,a#0 exited 1", want: "stop[S0] create#1 start[i#1]"},
		{name: "in the new sandbox, first", pod: pod, saw: "S0 lost,i#0 exited 0,j#0 exited 0,a#0 exited 1,S1 ready", want: "start[i#1]"},
		{name: "in the new sandbox, second", pod: pod, saw: "S0 lost,i#0 exited 0,j#0 exited 0,a#0 exited 1,S1 ready,i#1 exited 0", want: "remove[i#0] start[j#1]"},
		{name: "in the new sandbox, app", pod: pod, saw: "S0 lost,i#0 exited 0,j#0 exited 0,a#0 exited 1,S1 ready,i#1 exited 0,j#1 exited 0", want: "remove[i#0 j#0] start[a#1] initialized"},
		{name: "new sandbox, no back-off for what succeeded", pod: pod, saw: "S0 lost,i#0 exited 0 1s,S1 ready", with: backedOff("i", 10*time.Second, time.Second), want: "start[i#1]"},
		{name: "OnFailure, sandbox lost after init", pod: "OnFailure i:i a:a a:b", saw: "S0 lost,i#0 exited 0", want: "stop[S0] create#1 start[i#1]"},
		{name: "OnFailure, sandbox lost, one done", pod: "OnFailure i:i a:a a:b", saw: "S0 lost,i#0 exited 0,a#0 exited 0,b#0 exited 137", want: "stop[S0] create#1 start[i#1]"},
		{name: "OnFailure, then only the other runs again", pod: "OnFailure i:i a:a a:b", saw: "S0 lost,a#0 exited 0,b#0 exited 137,S1 ready,i#1 exited 0", want: "start[b#1] initialized"},
		{name: "OnFailure, sandbox lost, all done", pod: "OnFailure i:i a:a a:b", saw: "S0 lost,i#0 exited 0,a#0 exited 0,b#0 exited 0", want: "finished"},
		{name: "Never, sandbox lost after init", pod: "Never i:i a:a", saw: "S0 lost,i#0 exited 0", want: "stop[S0] create#1 start[i#1]"},
		{name: "Never, sandbox lost in init", pod: "Never i:i a:a", saw: "S0 lost,i#0 running", want: "kill[i#0:pod]"},
		{name: "Never, sandbox lost and init killed", pod: "Never i:i a:a", saw: "S0 lost,i#0 exited 137", want: "finished"},
	})
}

func TestDecideSidecar(t *testing.T) {
	const pod = "Always s:s i:i s:u a:a"
	check(t, Decide, []example{
		{name: "first", pod: pod, saw: "S0 ready", want: "start[s#0]"},
		{name: "started, next", pod: pod, saw: "S0 ready,s#0 running", want: "start[i#0]"},
		{name: "init at work", pod: pod, saw: "S0 ready,s#0 running,i#0 running", want: ""},
		{name: "second sidecar", pod: pod, saw: "S0 ready,s#0 running,i#0 exited 0", want: "start[u#0]"},
		{name: "app", pod: pod, saw: "S0 ready,s#0 running,i#0 exited 0,u#0 running", want: "start[a#0] initialized"},
		{name: "all up", pod: pod, saw: "S0 ready,s#0 running,i#0 exited 0,u#0 running,a#0 running", want: "initialized"},
		{name: "startup probe unanswered", pod: "Always s:s+startup a:a", saw: "S0 ready,s#0 running", want: ""},
		{name: "startup probe of another", pod: "Always s:s+startup a:a", saw: "S0 ready,s#1 running", with: probed("s", "s#0", "", true), want: ""},
		{name: "startup probe succeeded", pod: "Always s:s+startup a:a", saw: "S0 ready,s#0 running", with: probed("s", "s#0", "", true), want: "start[a#0] initialized"},
		{name: "startup probe failed", pod: "Always s:s+startup a:a", saw: "S0 ready,s#0 running", with: probed("s", "s#0", "Startup", false), want: "kill[s#0:startup]"},
		{name: "postStart under way", pod: pod, saw: "S0 ready,s#0 running", with: busy("s#0", PostStart), want: ""},
		{name: "being stopped", pod: pod, saw: "S0 ready,s#0 running", with: busy("s#0", Stopping), want: ""},
		{name: "its stop has begun", pod: pod, saw: "S0 ready,s#0 running,i#0 exited 0", with: begun("s#0"), want: "kill[s#0:begun] start[u#0]"},
		{name: "its stop has begun before the next", pod: pod, saw: "S0 ready,s#0 running", with: begun("s#0"), want: "kill[s#0:begun]"},
		{name: "an init container's stop has begun", pod: pod, saw: "S0 ready,s#0 running,i#0 unknown", with: begun("i#0"), want: "kill[i#0:begun]"},
		{name: "crashed before the next began", pod: pod, saw: "S0 ready,s#0 exited 0", want: "start[s#1]"},
		{name: "crashed during init", pod: pod, saw: "S0 ready,s#0 exited 1,i#0 running", want: "start[s#1]"},
		{name: "crashed during init, which failed", pod: pod, saw: "S0 ready,s#0 exited 1,i#0 exited 1", want: "start[s#1 i#1]"},
		{name: "crashed, Never", pod: "Never s:s a:a", saw: "S0 ready,s#0 exited 1,a#0 running", want: "start[s#1] initialized"},
		{name: "crashed, back-off", pod: pod, saw: "S0 ready,s#0 exited 1 4s,a#0 running,u#0 running", with: backedOff("s", 10*time.Second, 20*time.Second), want: "wait[s#1+6s] initialized"},
		{name: "crashed, app not started yet", pod: pod, saw: "S0 ready,s#0 running,i#0 exited 0,u#0 exited 1", want: "start[u#1]"},
		{name: "crashed while an app crashed", pod: "Always s:s a:a", saw: "S0 ready,s#0 exited 1,a#0 exited 1", want: "start[s#1 a#1] initialized"},
		{name: "record gone", pod: pod, saw: "S0 ready,a#0 running", want: "start[s#0 u#0] initialized"},
		{name: "record gone, floor", pod: pod, saw: "S0 ready,a#0 running,u#0 running", with: floor("s", 3), want: "start[s#3] initialized"},
		{name: "created leftover", pod: pod, saw: "S0 ready,s#0 created", want: "remove[s#0] start[s#0]"},
		{name: "unknown", pod: pod, saw: "S0 ready,s#0 unknown,a#0 running,u#0 running", want: "kill[s#0:unknown] initialized"},
		{name: "liveness failed", pod: pod, saw: "S0 ready,s#0 running,a#0 running,u#0 running", with: probed("s", "s#0", "Liveness", true), want: "kill[s#0:liveness] initialized"},
		{name: "changed", pod: pod, saw: "S0 ready,s#0 running!,a#0 running,u#0 running", want: "kill[s#0:changed] initialized"},

		{name: "does not keep a finished pod, Never", pod: "Never s:s a:a", saw: "S0 ready,s#0 running,a#0 exited 1", want: "finished"},
		{name: "does not keep a finished pod, OnFailure", pod: "OnFailure s:s a:a", saw: "S0 ready,s#0 running,a#0 exited 0", want: "finished"},
		{name: "is not restarted for a finished pod", pod: "Never s:s a:a", saw: "S0 ready,s#0 exited 1,a#0 exited 1", want: "finished"},
		{name: "does not wait for a finished pod", pod: "Never s:s a:a", saw: "S0 ready,s#0 exited 1 4s,a#0 exited 1", with: backedOff("s", 10*time.Second, 20*time.Second), want: "finished"},
		{name: "is not killed for a finished pod", pod: "Never s:s a:a", saw: "S0 ready,s#0 running!,a#0 exited 1", want: "finished"},
		{name: "is not restarted beside the last app's end", pod: "Never s:s a:a a:b", saw: "S0 ready,s#0 exited 1,a#0 running,b#0 exited 1", with: begun("a#0"), want: "kill[a#0:begun] initialized"},
		{name: "is not restarted beside the last app's end, under way", pod: "Never s:s a:a", saw: "S0 ready,s#0 exited 1,a#0 running", with: all(begun("a#0"), busy("a#0", Stopping)), want: "initialized"},
		{name: "is not restarted when the last app is killed", pod: "Never s:s a:a", saw: "S0 ready,s#0 exited 1,a#0 running", with: probed("a", "a#0", "Liveness", true), want: "kill[a#0:liveness] initialized"},
		{name: "is not killed beside the last app's end", pod: "Never s:s a:a", saw: "S0 ready,s#0 running,a#0 running", with: all(begun("a#0"), probed("s", "s#0", "Liveness", true)), want: "kill[a#0:begun] initialized"},
		{name: "its own end goes on beside the last app's", pod: "Never s:s a:a", saw: "S0 ready,s#0 running,a#0 running", with: begun("s#0", "a#0"), want: "kill[s#0:begun a#0:begun] initialized"},
		{name: "no debugging beside the last app's end", pod: "Never a:a e:e", saw: "S0 ready,a#0 running", with: begun("a#0"), want: "kill[a#0:begun] initialized"},
		{name: "is restarted beside the end of an app that starts again", pod: "Always s:s a:a", saw: "S0 ready,s#0 exited 1,a#0 running", with: begun("a#0"), want: "kill[a#0:begun] start[s#1] initialized"},
		{name: "is restarted beside the end of one app of two", pod: "Never s:s a:a a:b", saw: "S0 ready,s#0 exited 1,a#0 running,b#0 running", with: begun("a#0"), want: "kill[a#0:begun] start[s#1] initialized"},
		{name: "is restarted beside the end of an app with rules", pod: "Never s:s a:a=Never", saw: "S0 ready,s#0 exited 1,a#0 running", with: all(begun("a#0"), func(in *Input) {
			in.Pod.Spec.Containers[0].RestartPolicyRules = rules(v1.ContainerRestartRuleOnExitCodesOpIn, 137)
		}), want: "kill[a#0:begun] start[s#1] initialized"},
		{name: "goes with the pod that failed", pod: "Never s:s a:a a:b", saw: "S0 ready,s#0 running,a#0 exited 1,b#0 running", want: "initialized"},
	})
}

// TestDecideLostRecords has pods of which the runtime has forgotten something.
func TestDecideLostRecords(t *testing.T) {
	check(t, Decide, []example{
		{name: "everything gone, Always", pod: "Always a:a", with: floor("a", 4), want: "create#0 start[a#4]"},
		{name: "container gone, Always", pod: "Always a:a", saw: "S0 ready", with: all(floor("a", 4), endedWith(map[string]int32{"a": 0})), want: "start[a#4] initialized"},
		{name: "container gone that had ended, Never", pod: "Never a:a a:b", saw: "S0 ready,b#0 running", with: all(floor("a", 1), endedWith(map[string]int32{"a": 1})), want: "initialized"},
		{name: "container gone that had ended, OnFailure", pod: "OnFailure a:a a:b", saw: "S0 ready,b#0 running", with: endedWith(map[string]int32{"a": 0}), want: "initialized"},
		{name: "container gone that had failed, OnFailure", pod: "OnFailure a:a a:b", saw: "S0 ready,b#0 running", with: all(floor("a", 1), endedWith(map[string]int32{"a": 1})), want: "start[a#1] initialized"},
		{name: "all gone that had ended, Never", pod: "Never a:a", with: endedWith(map[string]int32{"a": 1}), want: "finished"},
		{name: "all gone that had ended, OnFailure, sandbox there", pod: "OnFailure a:a a:b", saw: "S0 ready", with: endedWith(map[string]int32{"a": 0, "b": 0}), want: "finished"},
		{name: "a newer record counts more", pod: "Never a:a", saw: "S0 ready,a#1 running", with: endedWith(map[string]int32{"a": 1}), want: "initialized"},
		{name: "an older record counts less", pod: "OnFailure a:a a:b", saw: "S0 ready,a#1 exited 1,b#0 running", with: all(floor("a", 3), endedWith(map[string]int32{"a": 0})), want: "initialized"},
		{name: "an older record of what ended again", pod: "OnFailure a:a a:b", saw: "S0 ready,a#1 exited 0,b#0 running", with: all(floor("a", 3), endedWith(map[string]int32{"a": 1})), want: "start[a#3] initialized"},
		{name: "an older record and nothing remembered", pod: "OnFailure a:a", saw: "S0 ready,a#1 exited 1", with: floor("a", 3), want: "start[a#3] initialized"},
		{name: "Never, sandbox lost, other never made", pod: "Never a:a a:b", saw: "S0 lost,a#0 exited 0", want: "finished"},
		{name: "Never, sandbox lost, one runs", pod: "Never a:a a:b", saw: "S0 lost,a#0 exited 0,b#0 running", want: "kill[b#0:pod]"},
		{name: "Never, sandbox lost, then killed", pod: "Never a:a a:b", saw: "S0 lost,a#0 exited 0,b#0 exited 137", want: "finished"},
		{name: "Never, sandbox lost before anything ran", pod: "Never a:a", saw: "S0 lost,a#0 created", want: "stop[S0] create#1 remove[a#0] start[a#0]"},
		{name: "Never, sandbox lost, own policy Always", pod: "Never a:a=Always a:b", saw: "S0 lost,a#0 exited 0,b#0 exited 0", want: "stop[S0] create#1 start[a#1]"},
		{name: "OnFailure, sandbox lost, other never made", pod: "OnFailure a:a a:b", saw: "S0 lost,a#0 exited 0", want: "stop[S0] create#1 start[b#0]"},
		{name: "Always, own policy Never, sandbox lost", pod: "Always a:a=Never a:b", saw: "S0 lost,a#0 exited 0,b#0 exited 0", want: "stop[S0] create#1 start[b#1]"},
		{name: "init failed for good, then the sandbox was lost", pod: "Always i:i=Never a:a", saw: "S0 lost,a#0 exited 0,S1 lost,i#1 exited 1", want: "finished"},
	})
}

func TestDecideEphemeral(t *testing.T) {
	check(t, Decide, []example{
		{name: "starts", pod: "Always a:a e:d", saw: "S0 ready,a#0 running", want: "start[d#0] initialized"},
		{name: "starts during init", pod: "Always i:i a:a e:d", saw: "S0 ready,i#0 running", want: "start[d#0]"},
		{name: "runs", pod: "Always a:a e:d", saw: "S0 ready,a#0 running,d#0 running", want: "initialized"},
		{name: "never again", pod: "Always a:a e:d", saw: "S0 ready,a#0 running,d#0 exited 1", want: "initialized"},
		{name: "never again, record gone", pod: "Always a:a e:d", saw: "S0 ready,a#0 running", with: floor("d", 1), want: "initialized"},
		{name: "created leftover", pod: "Always a:a e:d", saw: "S0 ready,a#0 running,d#0 created", want: "remove[d#0] start[d#0] initialized"},
		{name: "not before the sandbox", pod: "Always a:a e:d", want: "create#0 start[a#0]"},
		{name: "not for a finished pod", pod: "Never a:a e:d", saw: "S0 ready,a#0 exited 0", want: "finished"},
		{name: "does not keep a finished pod", pod: "Never a:a e:d", saw: "S0 ready,a#0 exited 0,d#0 running", want: "finished"},
		{name: "not again in a new sandbox", pod: "Always a:a e:d", saw: "S0 lost,d#0 exited 1,S1 ready,a#0 running", want: "initialized"},
	})
}

func TestDecideGarbage(t *testing.T) {
	check(t, Decide, []example{
		{name: "one dead is kept", pod: "Always a:a", saw: "S0 ready,a#3 exited 1,a#4 running", want: "initialized"},
		{name: "older dead go", pod: "Always a:a", saw: "S0 ready,a#1 exited 1,a#2 exited 1,a#3 exited 1,a#4 running", want: "remove[a#2 a#1] initialized"},
		{name: "without a running one, too", pod: "Always a:a", saw: "S0 ready,a#1 exited 1,a#2 exited 1", want: "remove[a#1] start[a#3] initialized"},
		{name: "for each container", pod: "Always a:a a:b", saw: "S0 ready,a#1 exited 1,b#1 exited 1,a#2 running,b#2 running", want: "initialized"},
		{name: "busy ones stay", pod: "Always a:a", saw: "S0 ready,a#1 exited 1,a#2 exited 1,a#3 running", with: busy("a#1", Stopping), want: "initialized"},
		{name: "of containers that the pod has no longer", pod: "Always a:a", saw: "S0 ready,x#0 exited 0,x#1 exited 0,a#0 running", want: "remove[x#0] initialized"},
		{name: "same attempt twice", pod: "Always a:a", saw: "S0 ready,a#1 exited 1,S1 ready", with: func(in *Input) {
			in.Observed.Sandboxes = in.Observed.Sandboxes[1:]
			twin := *in.Observed.Containers[0]
			in.Observed.Containers = append(in.Observed.Containers, &twin)
		}, want: "remove[a#1] start[a#2] initialized"},
	})
}

func TestDecideStop(t *testing.T) {
	const pod = "Always s:s i:i s:u a:a a:b e:d"
	check(t, DecideStop, []example{
		{name: "nothing there", pod: pod, want: "stopped"},
		{name: "apps and ephemeral first", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 running,b#0 running,d#0 running", want: "kill[a#0:pod b#0:pod d#0:pod] held[s#0 u#0]"},
		{name: "those being stopped are left", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 running,b#0 running", with: busy("a#0", Stopping), want: "kill[b#0:pod] held[s#0 u#0]"},
		{name: "all being stopped", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 running", with: busy("a#0", Stopping), want: "held[s#0 u#0]"},
		{name: "a sidecar's hook is under way", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 running", with: busy("u#0", Stopping), want: "kill[a#0:pod] held[s#0]"},
		{name: "a sidecar's hook outlasts the rest", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 exited 0", with: busy("u#0", Stopping), want: "held[s#0]"},
		{name: "what has begun goes on in its turn", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 running", with: begun("s#0", "u#0", "a#0"), want: "kill[a#0:pod] held[s#0 u#0]"},
		{name: "postStart is cut off", pod: pod, saw: "S0 ready,a#0 running", with: busy("a#0", PostStart), want: "kill[a#0:pod]"},
		{name: "init at work", pod: pod, saw: "S0 ready,s#0 running,i#0 running", want: "kill[i#0:pod] held[s#0]"},
		{name: "then the last sidecar", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 exited 0", want: "kill[u#0:pod] held[s#0]"},
		{name: "then the one before it", pod: pod, saw: "S0 ready,s#0 running,u#0 exited 0,a#0 exited 0", want: "kill[s#0:pod]"},
		{name: "both instances of a sidecar", pod: pod, saw: "S0 ready,s#0 running,s#1 unknown", want: "kill[s#1:pod s#0:pod]"},
		{name: "unknown counts as running", pod: pod, saw: "S0 ready,a#0 unknown", want: "kill[a#0:pod]"},
		{name: "then the sandboxes", pod: pod, saw: "S0 lost,S1 ready,s#0 exited 0", want: "stop[S1 S0]"},
		{name: "a lost sandbox is stopped, too", pod: pod, saw: "S0 lost,s#0 exited 0", want: "stop[S0] stopped"},
		{name: "what is busy has to end", pod: pod, saw: "S0 lost,a#0 exited 0", with: busy("a#0", PostStart), want: "stop[S0]"},
		{name: "containers of no spec", pod: "Always", saw: "S0 ready,x#0 running,y#0 running", want: "kill[x#0:pod y#0:pod]"},
		{name: "created ones go with the sandbox", pod: pod, saw: "S0 ready,a#0 created", want: "stop[S0]"},
	})
}

func TestKillDetails(t *testing.T) {
	for _, e := range []struct {
		example
		message string
		grace   int64
	}{
		{example{pod: "Always a:a", saw: "S0 ready,a#0 running", with: probed("a", "a#0", "Liveness", true)}, "Container a failed liveness probe, will be restarted", 7},
		{example{pod: "Never a:a", saw: "S0 ready,a#0 running", with: probed("a", "a#0", "Liveness", true)}, "Container a failed liveness probe", 7},
		{example{pod: "Never a:a=OnFailure", saw: "S0 ready,a#0 running", with: probed("a", "a#0", "Startup", true)}, "Container a failed startup probe, will be restarted", 0},
		{example{pod: "Always a:a", saw: "S0 ready,a#0 running!"}, "Container a definition changed, will be restarted", 0},
		{example{pod: "Never a:a", saw: "S0 ready,a#0 running!"}, "Container a definition changed, will be restarted", 0},
		{example{pod: "Always a:a", saw: "S0 ready,a#0 unknown"}, `Container a is in "unknown" state, try killing it before restart`, 0},
		{example{pod: "Always s:a", saw: "S0 ready,a#0 running!"}, "Init container a definition changed", 0},
		{example{pod: "Always s:a", saw: "S0 ready,a#0 running", with: probed("a", "a#0", "Liveness", true)}, "Init container a failed liveness probe", 7},
		{example{pod: "Always s:a+startup", saw: "S0 ready,a#0 running", with: probed("a", "a#0", "Startup", false)}, "Init container a failed startup probe", 0},
		{example{pod: "Always a:a", saw: "S0 lost,a#0 running"}, "Pod sandbox changed, it will be killed and re-created.", 0},
	} {
		a := Decide(e.input(t))
		if len(a.Kill) != 1 {
			t.Fatalf("%s, %s: %s", e.pod, e.saw, summary(a))
		}
		k := a.Kill[0]
		if k.Message != e.message || k.Spec == nil || k.Spec.Name != "a" {
			t.Errorf("%s, %s: message %q, spec %v", e.pod, e.saw, k.Message, k.Spec)
		}
		if again := strings.HasSuffix(e.message, restartTail) || strings.HasPrefix(e.message, "Init"); k.Again != again {
			t.Errorf("%s, %s: starts again: %v", e.pod, e.saw, k.Again)
		}
		if (k.Grace == nil) != (e.grace == 0) || k.Grace != nil && *k.Grace != e.grace {
			t.Errorf("%s, %s: grace %v", e.pod, e.saw, k.Grace)
		}
	}
	in := example{pod: "Always e:d", saw: "S0 ready,d#0 running,x#0 running"}.input(t)
	a := DecideStop(in)
	if a.Kill[0].Spec == nil || a.Kill[0].Spec.Name != "d" || a.Kill[1].Spec != nil {
		t.Errorf("specs of an ephemeral and an unknown container: %+v", a.Kill)
	}
	if a.Kill[0].Message != "Stopping container d" {
		t.Errorf("message %q", a.Kill[0].Message)
	}
}

func TestStartDetails(t *testing.T) {
	in := example{pod: "Always i:i a:a a:b", saw: "S0 lost,i#0 exited 0,a#0 exited 1,b#0 exited 1,S1 ready,i#1 exited 0,b#1 created"}.input(t)
	a := Decide(in)
	if summary(a) != "remove[b#1 i#0] start[a#1 b#1] initialized" {
		t.Fatal(summary(a))
	}
	for i, want := range []string{"a#0", "b#0"} {
		if s := a.Start[i]; s.Kind != App || s.Previous == nil || s.Previous.Id != want {
			t.Errorf("start %+v, want it after %s", s, want)
		}
	}
	if a.SandboxChanged || a.SandboxID != "S1" {
		t.Errorf("sandbox %q, changed %v", a.SandboxID, a.SandboxChanged)
	}
	in = example{pod: "Always i:i a:a", saw: "S0 lost,i#0 exited 0,S1 ready"}.input(t)
	if s := Decide(in).Start[0]; s.Kind != Init || s.Previous != nil {
		t.Errorf("an init container that runs anew counts towards its back-off: %+v", s)
	}
	in = example{pod: "Always a:a", saw: "S0 lost"}.input(t)
	if a := Decide(in); !a.SandboxChanged || a.SandboxID != "" {
		t.Errorf("sandbox %q, changed %v", a.SandboxID, a.SandboxChanged)
	}
	if a := Decide(example{pod: "Always a:a"}.input(t)); a.SandboxChanged {
		t.Error("a first sandbox counts as changed")
	}
}
