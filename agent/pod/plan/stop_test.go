package plan

import "testing"

// TestStopTurns checks what KEP-753 says of sidecars while their pod ends.
func TestStopTurns(t *testing.T) {
	const pod = "Always s:s s:u a:a e:d"
	const running = "S0 ready,s#0 running,u#0 running,a#0 running"
	stopping := func(ids ...string) func(*Input) {
		return func(in *Input) {
			in.Busy = map[string]Operation{}
			for _, id := range ids {
				in.Busy[id] = Stopping
			}
		}
	}
	check(t, DecideStop, []example{
		{name: "sidecars run their hooks meanwhile", pod: pod, saw: running, want: "kill[a#0:pod] held[s#0 u#0]"},
		{name: "a hook under way is left", pod: pod, saw: running, with: stopping("a#0", "s#0"), want: "held[u#0]"},
		{
			name: "its turn has come, but its hook runs", pod: pod,
			saw: "S0 ready,s#0 running,u#0 running,a#0 exited 0", with: stopping("s#0", "u#0"),
			want: "",
		},
		{
			name: "its turn has come", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 exited 0",
			with: stopping("s#0"), want: "kill[u#0:pod]",
		},
		{
			name: "the last one waits for nobody", pod: pod,
			saw: "S0 ready,s#0 running,u#0 exited 0,a#0 exited 0", want: "kill[s#0:pod]",
		},
		{
			name: "an ephemeral container holds nobody back",
			pod:  pod,
			saw:  "S0 ready,s#0 running,u#0 exited 0,a#0 exited 0,d#0 running",
			want: "kill[s#0:pod d#0:pod]",
		},
		{
			name: "a container of no spec holds nobody back", pod: pod,
			saw: "S0 ready,u#0 running,x#0 running", want: "kill[u#0:pod x#0:pod]",
		},
	})
}

func TestDecideStop(t *testing.T) {
	const pod = "Always s:s i:i s:u a:a a:b e:d"
	check(t, DecideStop, []example{
		{name: "nothing there", pod: pod, want: "stopped"},
		{
			name: "apps and ephemeral first", pod: pod,
			saw:  "S0 ready,s#0 running,u#0 running,a#0 running,b#0 running,d#0 running",
			want: "kill[a#0:pod b#0:pod d#0:pod] held[s#0 u#0]",
		},
		{
			name: "those being stopped are left", pod: pod,
			saw: "S0 ready,s#0 running,u#0 running,a#0 running,b#0 running", with: busy("a#0", Stopping),
			want: "kill[b#0:pod] held[s#0 u#0]",
		},
		{
			name: "all being stopped", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 running",
			with: busy("a#0", Stopping), want: "held[s#0 u#0]",
		},
		{
			name: "a sidecar's hook is under way", pod: pod,
			saw: "S0 ready,s#0 running,u#0 running,a#0 running", with: busy("u#0", Stopping),
			want: "kill[a#0:pod] held[s#0]",
		},
		{
			name: "a sidecar's hook outlasts the rest", pod: pod,
			saw: "S0 ready,s#0 running,u#0 running,a#0 exited 0", with: busy("u#0", Stopping),
			want: "held[s#0]",
		},
		{
			name: "what has begun goes on in its turn", pod: pod,
			saw: "S0 ready,s#0 running,u#0 running,a#0 running", with: begun("s#0", "u#0", "a#0"),
			want: "kill[a#0:pod] held[s#0 u#0]",
		},
		{
			name: "postStart is cut off", pod: pod, saw: "S0 ready,a#0 running", with: busy("a#0", PostStart),
			want: "kill[a#0:pod]",
		},
		{name: "init at work", pod: pod, saw: "S0 ready,s#0 running,i#0 running", want: "kill[i#0:pod] held[s#0]"},
		{
			name: "then the last sidecar", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 exited 0",
			want: "kill[u#0:pod] held[s#0]",
		},
		{
			name: "then the one before it", pod: pod,
			saw: "S0 ready,s#0 running,u#0 exited 0,a#0 exited 0", want: "kill[s#0:pod]",
		},
		{
			name: "both instances of a sidecar", pod: pod, saw: "S0 ready,s#0 running,s#1 unknown",
			want: "kill[s#1:pod s#0:pod]",
		},
		{name: "unknown counts as running", pod: pod, saw: "S0 ready,a#0 unknown", want: "kill[a#0:pod]"},
		{name: "then the sandboxes", pod: pod, saw: "S0 lost,S1 ready,s#0 exited 0", want: "stop[S1 S0]"},
		{name: "a lost sandbox is stopped, too", pod: pod, saw: "S0 lost,s#0 exited 0", want: "stop[S0] stopped"},
		{
			name: "what is busy has to end", pod: pod, saw: "S0 lost,a#0 exited 0", with: busy("a#0", PostStart),
			want: "stop[S0]",
		},
		{
			name: "containers of no spec", pod: "Always", saw: "S0 ready,x#0 running,y#0 running",
			want: "kill[x#0:pod y#0:pod]",
		},
		{name: "created ones go with the sandbox", pod: pod, saw: "S0 ready,a#0 created", want: "stop[S0]"},
	})
}
