package plan

import "testing"

// TestStopTurns has what KEP-753 says of sidecars while their pod ends.
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
		{name: "its turn has come, but its hook runs", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 exited 0", with: stopping("s#0", "u#0"), want: ""},
		{name: "its turn has come", pod: pod, saw: "S0 ready,s#0 running,u#0 running,a#0 exited 0", with: stopping("s#0"), want: "kill[u#0:pod]"},
		{name: "the last one waits for nobody", pod: pod, saw: "S0 ready,s#0 running,u#0 exited 0,a#0 exited 0", want: "kill[s#0:pod]"},
		{
			name: "an ephemeral container holds nobody back", pod: pod, saw: "S0 ready,s#0 running,u#0 exited 0,a#0 exited 0,d#0 running",
			want: "kill[s#0:pod d#0:pod]",
		},
		{name: "a container of no spec holds nobody back", pod: pod, saw: "S0 ready,u#0 running,x#0 running", want: "kill[u#0:pod x#0:pod]"},
	})
}
