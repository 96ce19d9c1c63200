package source

import (
	"strings"
	"testing"
)

// A pod whose log directory no file system could make is refused where it is read, and told why.
func TestNameTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		name, namespace, want string
	}{
		"as long as can be": {strings.Repeat("n", 255-len("default_")-len("-node_")-32), "default", ""},
		"one more": {
			strings.Repeat("n", 256-len("default_")-len("-node_")-32), "default",
			"is too long by 1: the pod's log directory, NAMESPACE_NAME_UID, has at most 255 characters",
		},
		"in a long namespace":     {strings.Repeat("n", 180), strings.Repeat("s", 63), "is too long by 27"},
		"longer than a name's":    {strings.Repeat("n", 249), "default", "must be no more than 253 characters"},
		"only the node's name is": {strings.Repeat("n", 240), "default", "is too long by"},
	} {
		text := strings.NewReplacer("name: a", "name: "+c.name+"\n  namespace: "+c.namespace).Replace(goodPod)
		v := Decoder{NodeName: "node"}.Decode("f", []byte(text))[0].Result
		switch {
		case v.Accepted != (c.want == ""):
			t.Errorf("%s: accepted %v: %s", name, v.Accepted, v.Message)
		case c.want != "" &&
			(v.Field != "metadata.name" || !strings.Contains(v.Message, c.want) || v.Line == 0 || len(v.Faults) > 1):
			t.Errorf("%s: line %d: %s: %s, %d faults", name, v.Line, v.Field, v.Message, len(v.Faults))
		}
	}
}

// Scheduling gates are refused where they stand, in one fault.
func TestSchedulingGates(t *testing.T) {
	text := strings.Replace(goodPod, "spec:",
		"spec:\n  schedulingGates: [{name: example.com/a}, {name: example.com/b}]", 1)
	v := Decoder{NodeName: "node"}.Decode("f", []byte(text))[0].Result
	const want = "spec.schedulingGates[0]: Forbidden: a pod from a manifest is on its node already: no scheduler " +
		"would clear the gate; take schedulingGates out of it"
	if v.Accepted || v.Message != want || v.Field != "spec.schedulingGates[0]" ||
		strings.Contains(v.Text(4096), "nodeName") {
		t.Errorf("accepted %v, %s", v.Accepted, v.Text(4096))
	}
}
