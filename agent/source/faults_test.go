package source

import (
	"fmt"
	"testing"
)

// A manifest that is wrong everywhere is not told of for ever.
func TestManyFaults(t *testing.T) {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n"
	for i := range maxFaults + 7 {
		text += fmt.Sprintf("  k%03d: %d\n", i, i)
	}
	v := (Decoder{NodeName: "n"}).Decode("f", []byte(text))[0].Result
	if len(v.Faults) != maxFaults+1 || v.Faults[maxFaults].Message != "and 7 more errors" || v.Line != 5 ||
		v.Faults[1].Line != 6 {
		t.Errorf("%d faults: %+v", len(v.Faults), v)
	}
}

func TestResultText(t *testing.T) {
	v := Result{Message: "a: wrong", Faults: []Fault{{1, "a", "a: wrong"}, {2, "b", "b: bad"}, {0, "c", "c: worse"}}}
	for limit, want := range map[int]string{
		1000: "a: wrong; line 2: b: bad; c: worse",
		25:   "a: wrong; line 2: b: bad; and 1 more error",
		1:    "a: wrong; and 2 more errors",
	} {
		if got := v.Text(limit); got != want {
			t.Errorf("%d bytes: %q", limit, got)
		}
	}
	one := Result{Message: "the manifest is empty"}
	if got := one.Text(1); got != one.Message {
		t.Errorf("got %q", got)
	}
}
