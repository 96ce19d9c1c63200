package node

import "testing"

func TestSwapIn(t *testing.T) {
	const heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	for table, want := range map[string]string{
		"": "", heading: "", heading + "/dev/sda2                               partition\t1\t0\t-2\n": "/dev/sda2",
	} {
		if got := swapIn(table); got != want {
			t.Errorf("%q: %q, want %q", table, got, want)
		}
	}
}
