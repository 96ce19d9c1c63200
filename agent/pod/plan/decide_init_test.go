package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestDecideInit(t *testing.T) {
	const pod = "Always i:i i:j a:a"
	check(t, Decide, []example{
		{name: "first", pod: pod, saw: "S0 ready", want: "start[i#0]"},
		{name: "first at work", pod: pod, saw: "S0 ready,i#0 running", want: ""},
		{name: "first done", pod: pod, saw: "S0 ready,i#0 exited 0", want: "start[j#0]"},
		{name: "both done", pod: pod, saw: "S0 ready,i#0 exited 0,j#0 exited 0", want: "start[a#0] initialized"},
		{name: "first failed", pod: pod, saw: "S0 ready,i#0 exited 1", want: "start[i#1]"},
		{
			name: "first failed, back-off", pod: pod, saw: "S0 ready,i#1 exited 1 3s",
			with: backedOff("i", 10*time.Second, 9*time.Second), want: "wait[i#2+7s]",
		},
		{
			name: "second failed, first stays done", pod: pod,
			saw: "S0 ready,i#0 exited 0,j#0 exited 1", want: "start[j#1]",
		},
		{name: "second failed, first's record gone", pod: pod, saw: "S0 ready,j#0 exited 1", want: "start[j#1]"},
		{name: "OnFailure", pod: "OnFailure i:i a:a", saw: "S0 ready,i#0 exited 1", want: "start[i#1]"},
		{name: "Never", pod: "Never i:i a:a", saw: "S0 ready,i#0 exited 1", want: "finished"},
		{
			name: "Never, being stopped", pod: "Never i:i a:a", saw: "S0 ready,i#0 exited 137",
			with: busy("i#0", Stopping), want: "",
		},
		{name: "Never, done", pod: "Never i:i a:a", saw: "S0 ready,i#0 exited 0", want: "start[a#0] initialized"},
		{
			name: "Never, sidecar beside a failure", pod: "Never s:s i:i a:a",
			saw: "S0 ready,s#0 exited 1,i#0 exited 1", want: "finished",
		},
		{name: "own policy Never", pod: "Always i:i=Never a:a", saw: "S0 ready,i#0 exited 1", want: "finished"},
		{
			name: "own policy OnFailure", pod: "Never i:i=OnFailure a:a",
			saw: "S0 ready,i#0 exited 1", want: "start[i#1]",
		},
		{name: "created leftover", pod: pod, saw: "S0 ready,i#0 created", want: "remove[i#0] start[i#0]"},
		{
			name: "created leftover of the second", pod: pod,
			saw: "S0 ready,i#0 exited 0,j#0 created", want: "remove[j#0] start[j#0]",
		},
		{name: "unknown", pod: pod, saw: "S0 ready,i#0 unknown", want: "kill[i#0:unknown]"},
		{name: "unknown, being stopped", pod: pod, saw: "S0 ready,i#0 unknown", with: busy("i#0", Stopping), want: ""},
		{name: "changed spec is no matter", pod: pod, saw: "S0 ready,i#0 running!", want: ""},

		{name: "records gone, app runs", pod: pod, saw: "S0 ready,a#0 running", want: "initialized"},
		{name: "records gone, app ended", pod: pod, saw: "S0 ready,a#0 exited 1", want: "start[a#1] initialized"},
		{
			name: "records gone, app created", pod: pod, saw: "S0 ready,a#0 created",
			want: "remove[a#0] start[a#0] initialized",
		},
		{
			name: "records gone, noted", pod: pod, saw: "S0 ready", with: initializedIn("S0"),
			want: "start[a#0] initialized",
		},
		{name: "noted for another sandbox", pod: pod, saw: "S1 ready", with: initializedIn("S0"), want: "start[i#0]"},
		{name: "noted, no sandbox", pod: pod, with: initializedIn("S0"), want: "create#0 start[i#0]"},
		{
			name: "a failure after it was noted is no matter", pod: pod,
			saw: "S0 ready,j#0 exited 1,a#0 running", with: initializedIn("S0"),
			want: "initialized",
		},

		{
			name: "new sandbox runs them again", pod: pod,
			saw:  "S0 lost,i#0 exited 0,j#0 exited 0,a#0 exited 1",
			want: "stop[S0] create#1 start[i#1]",
		},
		{
			name: "in the new sandbox, first", pod: pod,
			saw: "S0 lost,i#0 exited 0,j#0 exited 0,a#0 exited 1,S1 ready", want: "start[i#1]",
		},
		{
			name: "in the new sandbox, second", pod: pod,
			saw:  "S0 lost,i#0 exited 0,j#0 exited 0,a#0 exited 1,S1 ready,i#1 exited 0",
			want: "remove[i#0] start[j#1]",
		},
		{
			name: "in the new sandbox, app", pod: pod,
			saw:  "S0 lost,i#0 exited 0,j#0 exited 0,a#0 exited 1,S1 ready,i#1 exited 0,j#1 exited 0",
			want: "remove[i#0 j#0] start[a#1] initialized",
		},
		{
			name: "new sandbox, no back-off for what succeeded", pod: pod,
			saw: "S0 lost,i#0 exited 0 1s,S1 ready", with: backedOff("i", 10*time.Second, time.Second),
			want: "start[i#1]",
		},
		{
			name: "OnFailure, sandbox lost after init", pod: "OnFailure i:i a:a a:b",
			saw: "S0 lost,i#0 exited 0", want: "stop[S0] create#1 start[i#1]",
		},
		{
			name: "OnFailure, sandbox lost, one done", pod: "OnFailure i:i a:a a:b",
			saw:  "S0 lost,i#0 exited 0,a#0 exited 0,b#0 exited 137",
			want: "stop[S0] create#1 start[i#1]",
		},
		{
			name: "OnFailure, then only the other runs again", pod: "OnFailure i:i a:a a:b",
			saw:  "S0 lost,a#0 exited 0,b#0 exited 137,S1 ready,i#1 exited 0",
			want: "start[b#1] initialized",
		},
		{
			name: "OnFailure, sandbox lost, all done", pod: "OnFailure i:i a:a a:b",
			saw: "S0 lost,i#0 exited 0,a#0 exited 0,b#0 exited 0", want: "finished",
		},
		{
			name: "Never, sandbox lost after init", pod: "Never i:i a:a",
			saw: "S0 lost,i#0 exited 0", want: "stop[S0] create#1 start[i#1]",
		},
		{name: "Never, sandbox lost in init", pod: "Never i:i a:a", saw: "S0 lost,i#0 running", want: "kill[i#0:pod]"},
		{
			name: "Never, sandbox lost and init killed", pod: "Never i:i a:a",
			saw: "S0 lost,i#0 exited 137", want: "finished",
		},
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
		{
			name: "all up", pod: pod, saw: "S0 ready,s#0 running,i#0 exited 0,u#0 running,a#0 running",
			want: "initialized",
		},
		{name: "startup probe unanswered", pod: "Always s:s+startup a:a", saw: "S0 ready,s#0 running", want: ""},
		{
			name: "startup probe of another", pod: "Always s:s+startup a:a",
			saw: "S0 ready,s#1 running", with: probed("s", "s#0", "", true), want: "",
		},
		{
			name: "startup probe succeeded", pod: "Always s:s+startup a:a",
			saw: "S0 ready,s#0 running", with: probed("s", "s#0", "", true),
			want: "start[a#0] initialized",
		},
		{
			name: "startup probe failed", pod: "Always s:s+startup a:a",
			saw: "S0 ready,s#0 running", with: probed("s", "s#0", "Startup", false),
			want: "kill[s#0:startup]",
		},
		{name: "postStart under way", pod: pod, saw: "S0 ready,s#0 running", with: busy("s#0", PostStart), want: ""},
		{name: "being stopped", pod: pod, saw: "S0 ready,s#0 running", with: busy("s#0", Stopping), want: ""},
		{
			name: "its stop has begun", pod: pod, saw: "S0 ready,s#0 running,i#0 exited 0", with: begun("s#0"),
			want: "kill[s#0:begun] start[u#0]",
		},
		{
			name: "its stop has begun before the next", pod: pod, saw: "S0 ready,s#0 running", with: begun("s#0"),
			want: "kill[s#0:begun]",
		},
		{
			name: "an init container's stop has begun", pod: pod,
			saw: "S0 ready,s#0 running,i#0 unknown", with: begun("i#0"), want: "kill[i#0:begun]",
		},
		{name: "crashed before the next began", pod: pod, saw: "S0 ready,s#0 exited 0", want: "start[s#1]"},
		{name: "crashed during init", pod: pod, saw: "S0 ready,s#0 exited 1,i#0 running", want: "start[s#1]"},
		{
			name: "crashed during init, which failed", pod: pod,
			saw: "S0 ready,s#0 exited 1,i#0 exited 1", want: "start[s#1 i#1]",
		},
		{
			name: "crashed, Never", pod: "Never s:s a:a", saw: "S0 ready,s#0 exited 1,a#0 running",
			want: "start[s#1] initialized",
		},
		{
			name: "crashed, back-off", pod: pod, saw: "S0 ready,s#0 exited 1 4s,a#0 running,u#0 running",
			with: backedOff("s", 10*time.Second, 20*time.Second), want: "wait[s#1+6s] initialized",
		},
		{
			name: "crashed, app not started yet", pod: pod,
			saw: "S0 ready,s#0 running,i#0 exited 0,u#0 exited 1", want: "start[u#1]",
		},
		{
			name: "crashed while an app crashed", pod: "Always s:s a:a",
			saw: "S0 ready,s#0 exited 1,a#0 exited 1", want: "start[s#1 a#1] initialized",
		},
		{name: "record gone", pod: pod, saw: "S0 ready,a#0 running", want: "start[s#0 u#0] initialized"},
		{
			name: "record gone, floor", pod: pod, saw: "S0 ready,a#0 running,u#0 running", with: floor("s", 3),
			want: "start[s#3] initialized",
		},
		{name: "created leftover", pod: pod, saw: "S0 ready,s#0 created", want: "remove[s#0] start[s#0]"},
		{
			name: "unknown", pod: pod, saw: "S0 ready,s#0 unknown,a#0 running,u#0 running",
			want: "kill[s#0:unknown] initialized",
		},
		{
			name: "liveness failed", pod: pod, saw: "S0 ready,s#0 running,a#0 running,u#0 running",
			with: probed("s", "s#0", "Liveness", true), want: "kill[s#0:liveness] initialized",
		},
		{
			name: "changed", pod: pod, saw: "S0 ready,s#0 running!,a#0 running,u#0 running",
			want: "kill[s#0:changed] initialized",
		},

		{
			name: "does not keep a finished pod, Never", pod: "Never s:s a:a",
			saw: "S0 ready,s#0 running,a#0 exited 1", want: "finished",
		},
		{
			name: "does not keep a finished pod, OnFailure", pod: "OnFailure s:s a:a",
			saw: "S0 ready,s#0 running,a#0 exited 0", want: "finished",
		},
		{
			name: "is not restarted for a finished pod", pod: "Never s:s a:a",
			saw: "S0 ready,s#0 exited 1,a#0 exited 1", want: "finished",
		},
		{
			name: "does not wait for a finished pod", pod: "Never s:s a:a",
			saw: "S0 ready,s#0 exited 1 4s,a#0 exited 1", with: backedOff("s", 10*time.Second, 20*time.Second),
			want: "finished",
		},
		{
			name: "is not killed for a finished pod", pod: "Never s:s a:a",
			saw: "S0 ready,s#0 running!,a#0 exited 1", want: "finished",
		},
		{
			name: "is not restarted beside the last app's end", pod: "Never s:s a:a a:b",
			saw: "S0 ready,s#0 exited 1,a#0 running,b#0 exited 1", with: begun("a#0"),
			want: "kill[a#0:begun] initialized",
		},
		{
			name: "is not restarted beside the last app's end, under way", pod: "Never s:s a:a",
			saw: "S0 ready,s#0 exited 1,a#0 running", with: all(begun("a#0"), busy("a#0", Stopping)),
			want: "initialized",
		},
		{
			name: "is not restarted when the last app is killed", pod: "Never s:s a:a",
			saw: "S0 ready,s#0 exited 1,a#0 running", with: probed("a", "a#0", "Liveness", true),
			want: "kill[a#0:liveness] initialized",
		},
		{
			name: "is not killed beside the last app's end", pod: "Never s:s a:a",
			saw: "S0 ready,s#0 running,a#0 running", with: all(begun("a#0"), probed("s", "s#0", "Liveness", true)),
			want: "kill[a#0:begun] initialized",
		},
		{
			name: "its own end goes on beside the last app's", pod: "Never s:s a:a",
			saw: "S0 ready,s#0 running,a#0 running", with: begun("s#0", "a#0"),
			want: "kill[s#0:begun a#0:begun] initialized",
		},
		{
			name: "no debugging beside the last app's end", pod: "Never a:a e:e",
			saw: "S0 ready,a#0 running", with: begun("a#0"), want: "kill[a#0:begun] initialized",
		},
		{
			name: "is restarted beside the end of an app that starts again", pod: "Always s:s a:a",
			saw: "S0 ready,s#0 exited 1,a#0 running", with: begun("a#0"),
			want: "kill[a#0:begun] start[s#1] initialized",
		},
		{
			name: "is restarted beside the end of one app of two", pod: "Never s:s a:a a:b",
			saw: "S0 ready,s#0 exited 1,a#0 running,b#0 running", with: begun("a#0"),
			want: "kill[a#0:begun] start[s#1] initialized",
		},
		{
			name: "is restarted beside the end of an app with rules",
			pod:  "Never s:s a:a=Never",
			saw:  "S0 ready,s#0 exited 1,a#0 running",
			with: all(begun("a#0"), func(in *Input) {
				in.Pod.Spec.Containers[0].RestartPolicyRules = rules(v1.ContainerRestartRuleOnExitCodesOpIn, 137)
			}),
			want: "kill[a#0:begun] start[s#1] initialized",
		},
		{
			name: "goes with the pod that failed", pod: "Never s:s a:a a:b",
			saw: "S0 ready,s#0 running,a#0 exited 1,b#0 running", want: "initialized",
		},
	})
}

func TestDecideEphemeral(t *testing.T) {
	check(t, Decide, []example{
		{name: "starts", pod: "Always a:a e:d", saw: "S0 ready,a#0 running", want: "start[d#0] initialized"},
		{name: "starts during init", pod: "Always i:i a:a e:d", saw: "S0 ready,i#0 running", want: "start[d#0]"},
		{name: "runs", pod: "Always a:a e:d", saw: "S0 ready,a#0 running,d#0 running", want: "initialized"},
		{name: "never again", pod: "Always a:a e:d", saw: "S0 ready,a#0 running,d#0 exited 1", want: "initialized"},
		{
			name: "never again, record gone", pod: "Always a:a e:d", saw: "S0 ready,a#0 running", with: floor("d", 1),
			want: "initialized",
		},
		{
			name: "created leftover", pod: "Always a:a e:d",
			saw: "S0 ready,a#0 running,d#0 created", want: "remove[d#0] start[d#0] initialized",
		},
		{name: "not before the sandbox", pod: "Always a:a e:d", want: "create#0 start[a#0]"},
		{name: "not for a finished pod", pod: "Never a:a e:d", saw: "S0 ready,a#0 exited 0", want: "finished"},
		{
			name: "does not keep a finished pod", pod: "Never a:a e:d",
			saw: "S0 ready,a#0 exited 0,d#0 running", want: "finished",
		},
		{
			name: "not again in a new sandbox", pod: "Always a:a e:d",
			saw: "S0 lost,d#0 exited 1,S1 ready,a#0 running", want: "initialized",
		},
	})
}
