package hostcgroups

import "testing"

func TestTeardownOfWhatWasNeverSetUp(t *testing.T) {
	h := New(Deps{})
	if err := h.Teardown(t.Context()); err != nil {
		t.Error(err)
	}
}
