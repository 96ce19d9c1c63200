package plan

import (
	"strings"
	"testing"
	"time"
)

// example is one row of a decision table.
type example struct {
	name string
	pod  string
	// saw has the lines of what was observed, separated by commas.
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
		{
			name: "lost with running", pod: "Always a:a a:b",
			saw: "S0 lost,a#0 running,b#2 running", want: "kill[b#2:pod a#0:pod]",
		},
		{
			name: "lost, being stopped", pod: "Always a:a", saw: "S0 lost,a#0 running", with: busy("a#0", Stopping),
			want: "",
		},
		{
			name: "lost while postStart runs", pod: "Always a:a", saw: "S0 lost,a#0 running",
			with: busy("a#0", PostStart), want: "kill[a#0:pod]",
		},
		{name: "lost with unknown", pod: "Always a:a", saw: "S0 lost,a#0 unknown", want: "kill[a#0:pod]"},
		{
			name: "lost, sidecars go last", pod: "Always s:s i:i s:u a:a",
			saw: "S0 lost,s#0 running,u#0 running,a#0 running", want: "kill[a#0:pod] held[s#0 u#0]",
		},
		{
			name: "lost, sidecars in reverse", pod: "Always s:s i:i s:u a:a",
			saw: "S0 lost,s#0 running,u#0 running,a#0 exited 0", want: "kill[u#0:pod] held[s#0]",
		},
		{name: "lost with ended", pod: "Always a:a", saw: "S0 lost,a#0 exited 1", want: "stop[S0] create#1 start[a#1]"},
		{name: "gone, container running", pod: "Always a:a", saw: "a#3 running", want: "kill[a#3:pod]"},
		{name: "gone, container ended", pod: "Always a:a", saw: "a#3 exited 0", want: "create#0 start[a#4]"},
		{name: "two ready", pod: "Always a:a", saw: "S0 ready,S1 ready", want: "stop[S1 S0] create#2 start[a#0]"},
		{name: "two ready, one used", pod: "Always a:a", saw: "S0 ready,a#0 running,S1 ready", want: "kill[a#0:pod]"},
		{name: "older one ready", pod: "Always a:a", saw: "S0 ready,S1 lost", want: "stop[S1 S0] create#2 start[a#0]"},
		{name: "no address", pod: "Always a:a", saw: "S0 bare", want: "stop[S0] create#1 start[a#0]"},
		{
			name: "no network reported", pod: "Always a:a", saw: "S0 bare",
			with: func(in *Input) { in.Observed.Sandboxes[0].Network = nil },
			want: "start[a#0] initialized",
		},
		{name: "host network", pod: "Always host: a:a", saw: "S0 host", want: "start[a#0] initialized"},
		{name: "became host network", pod: "Always host: a:a", saw: "S0 ready,a#0 running", want: "kill[a#0:pod]"},
		{name: "ceased to be host network", pod: "Always a:a", saw: "S0 host", want: "stop[S0] create#1 start[a#0]"},
		{
			name: "old ones are removed", pod: "Always a:a",
			saw: "S0 lost,S1 lost,S2 ready,a#2 running", want: "removeSandbox[S1 S0] initialized",
		},
		{
			name: "old one holds the last end", pod: "Always a:a",
			saw: "S0 lost,a#0 exited 1,S1 ready,a#1 running", want: "initialized",
		},
		{
			name: "old one holds an older end", pod: "Always a:a",
			saw:  "S0 lost,a#0 exited 1,S1 ready,a#1 exited 1,a#2 running",
			want: "remove[a#0] removeSandbox[S0] initialized",
		},
		{name: "the latest is never removed", pod: "Always a:a", saw: "S4 lost", want: "stop[S4] create#5 start[a#0]"},
		{
			name: "stale container in an old sandbox", pod: "Always a:a",
			saw: "S0 lost,a#0 running,S1 ready", want: "kill[a#0:stale] initialized",
		},
		{
			name: "stale container in an old sandbox, being stopped", pod: "Always a:a",
			saw: "S0 lost,a#0 running,S1 ready", with: busy("a#0", Stopping), want: "initialized",
		},
		{
			name: "stale container init in an old sandbox", pod: "Always i:i a:a",
			saw: "S0 lost,i#0 running,S1 ready", want: "kill[i#0:stale]",
		},
		{
			name: "two instances run", pod: "Always a:a", saw: "S0 ready,a#0 running,a#1 running",
			want: "kill[a#0:stale] initialized",
		},
		{
			name: "an older instance runs, the latest ended", pod: "Always a:a",
			saw: "S0 ready,a#0 unknown,a#1 exited 1", want: "kill[a#0:stale] initialized",
		},
	})
}

// TestDecideLostRecords has pods whose records the runtime has lost in part.
func TestDecideLostRecords(t *testing.T) {
	check(t, Decide, []example{
		{name: "everything gone, Always", pod: "Always a:a", with: floor("a", 4), want: "create#0 start[a#4]"},
		{
			name: "container gone, Always", pod: "Always a:a", saw: "S0 ready",
			with: all(floor("a", 4), endedWith(map[string]int32{"a": 0})),
			want: "start[a#4] initialized",
		},
		{
			name: "container gone that had ended, Never", pod: "Never a:a a:b",
			saw: "S0 ready,b#0 running", with: all(floor("a", 1), endedWith(map[string]int32{"a": 1})),
			want: "initialized",
		},
		{
			name: "container gone that had ended, OnFailure", pod: "OnFailure a:a a:b",
			saw: "S0 ready,b#0 running", with: endedWith(map[string]int32{"a": 0}),
			want: "initialized",
		},
		{
			name: "container gone that had failed, OnFailure", pod: "OnFailure a:a a:b",
			saw: "S0 ready,b#0 running", with: all(floor("a", 1), endedWith(map[string]int32{"a": 1})),
			want: "start[a#1] initialized",
		},
		{
			name: "all gone that had ended, Never", pod: "Never a:a", with: endedWith(map[string]int32{"a": 1}),
			want: "finished",
		},
		{
			name: "all gone that had ended, OnFailure, sandbox there", pod: "OnFailure a:a a:b",
			saw: "S0 ready", with: endedWith(map[string]int32{"a": 0, "b": 0}), want: "finished",
		},
		{
			name: "a newer record counts more", pod: "Never a:a", saw: "S0 ready,a#1 running",
			with: endedWith(map[string]int32{"a": 1}), want: "initialized",
		},
		{
			name: "an older record counts less", pod: "OnFailure a:a a:b",
			saw: "S0 ready,a#1 exited 1,b#0 running", with: all(floor("a", 3), endedWith(map[string]int32{"a": 0})),
			want: "initialized",
		},
		{
			name: "an older record of what ended again", pod: "OnFailure a:a a:b",
			saw: "S0 ready,a#1 exited 0,b#0 running", with: all(floor("a", 3), endedWith(map[string]int32{"a": 1})),
			want: "start[a#3] initialized",
		},
		{
			name: "an older record and nothing remembered", pod: "OnFailure a:a",
			saw: "S0 ready,a#1 exited 1", with: floor("a", 3), want: "start[a#3] initialized",
		},
		{
			name: "Never, sandbox lost, other never made", pod: "Never a:a a:b",
			saw: "S0 lost,a#0 exited 0", want: "finished",
		},
		{
			name: "Never, sandbox lost, one runs", pod: "Never a:a a:b",
			saw: "S0 lost,a#0 exited 0,b#0 running", want: "kill[b#0:pod]",
		},
		{
			name: "Never, sandbox lost, then killed", pod: "Never a:a a:b",
			saw: "S0 lost,a#0 exited 0,b#0 exited 137", want: "finished",
		},
		{
			name: "Never, sandbox lost before anything ran", pod: "Never a:a",
			saw: "S0 lost,a#0 created", want: "stop[S0] create#1 remove[a#0] start[a#0]",
		},
		{
			name: "Never, sandbox lost, own policy Always", pod: "Never a:a=Always a:b",
			saw: "S0 lost,a#0 exited 0,b#0 exited 0", want: "stop[S0] create#1 start[a#1]",
		},
		{
			name: "OnFailure, sandbox lost, other never made", pod: "OnFailure a:a a:b",
			saw: "S0 lost,a#0 exited 0", want: "stop[S0] create#1 start[b#0]",
		},
		{
			name: "Always, own policy Never, sandbox lost", pod: "Always a:a=Never a:b",
			saw: "S0 lost,a#0 exited 0,b#0 exited 0", want: "stop[S0] create#1 start[b#1]",
		},
		{
			name: "init failed for good, then the sandbox was lost", pod: "Always i:i=Never a:a",
			saw: "S0 lost,a#0 exited 0,S1 lost,i#1 exited 1", want: "finished",
		},
	})
}

func TestDecideGarbage(t *testing.T) {
	check(t, Decide, []example{
		{name: "one dead is kept", pod: "Always a:a", saw: "S0 ready,a#3 exited 1,a#4 running", want: "initialized"},
		{
			name: "older dead go", pod: "Always a:a",
			saw:  "S0 ready,a#1 exited 1,a#2 exited 1,a#3 exited 1,a#4 running",
			want: "remove[a#2 a#1] initialized",
		},
		{
			name: "without a running one, too", pod: "Always a:a",
			saw: "S0 ready,a#1 exited 1,a#2 exited 1", want: "remove[a#1] start[a#3] initialized",
		},
		{
			name: "for each container", pod: "Always a:a a:b",
			saw: "S0 ready,a#1 exited 1,b#1 exited 1,a#2 running,b#2 running", want: "initialized",
		},
		{
			name: "busy ones stay", pod: "Always a:a",
			saw: "S0 ready,a#1 exited 1,a#2 exited 1,a#3 running", with: busy("a#1", Stopping),
			want: "initialized",
		},
		{
			name: "of containers that the pod has no longer", pod: "Always a:a",
			saw: "S0 ready,x#0 exited 0,x#1 exited 0,a#0 running", want: "remove[x#0] initialized",
		},
		{name: "same attempt twice", pod: "Always a:a", saw: "S0 ready,a#1 exited 1,S1 ready", with: func(in *Input) {
			in.Observed.Sandboxes = in.Observed.Sandboxes[1:]
			twin := *in.Observed.Containers[0]
			in.Observed.Containers = append(in.Observed.Containers, &twin)
		}, want: "remove[a#1] start[a#2] initialized"},
	})
}

func TestKillDetails(t *testing.T) {
	for _, e := range []struct {
		example
		message string
		grace   int64
	}{
		{
			example{pod: "Always a:a", saw: "S0 ready,a#0 running", with: probed("a", "a#0", "Liveness", true)},
			"Container a failed liveness probe, will be restarted", 7,
		},
		{
			example{pod: "Never a:a", saw: "S0 ready,a#0 running", with: probed("a", "a#0", "Liveness", true)},
			"Container a failed liveness probe", 7,
		},
		{
			example{pod: "Never a:a=OnFailure", saw: "S0 ready,a#0 running", with: probed("a", "a#0", "Startup", true)},
			"Container a failed startup probe, will be restarted", 0,
		},
		{
			example{pod: "Always a:a", saw: "S0 ready,a#0 running!"},
			"Container a definition changed, will be restarted", 0,
		},
		{
			example{pod: "Never a:a", saw: "S0 ready,a#0 running!"},
			"Container a definition changed, will be restarted", 0,
		},
		{
			example{pod: "Always a:a", saw: "S0 ready,a#0 unknown"},
			`Container a is in "unknown" state, try killing it before restart`, 0,
		},
		{example{pod: "Always s:a", saw: "S0 ready,a#0 running!"}, "Init container a definition changed", 0},
		{
			example{pod: "Always s:a", saw: "S0 ready,a#0 running", with: probed("a", "a#0", "Liveness", true)},
			"Init container a failed liveness probe", 7,
		},
		{
			example{pod: "Always s:a+startup", saw: "S0 ready,a#0 running", with: probed("a", "a#0", "Startup", false)},
			"Init container a failed startup probe", 0,
		},
		{
			example{pod: "Always a:a", saw: "S0 lost,a#0 running"},
			"Pod sandbox changed, it will be killed and re-created.", 0,
		},
	} {
		a := Decide(e.input(t))
		if len(a.Kill) != 1 {
			t.Fatalf("%s, %s: %s", e.pod, e.saw, summary(a))
		}
		k := a.Kill[0]
		if k.Message != e.message || k.Spec == nil || k.Spec.Name != "a" {
			t.Errorf("%s, %s: message %q, spec %v", e.pod, e.saw, k.Message, k.Spec)
		}
		if again := strings.HasSuffix(e.message, restartTail) ||
			strings.HasPrefix(e.message, "Init"); k.Again != again {
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
	in := example{
		pod: "Always i:i a:a a:b",
		saw: "S0 lost,i#0 exited 0,a#0 exited 1,b#0 exited 1,S1 ready,i#1 exited 0,b#1 created",
	}.input(t)
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
