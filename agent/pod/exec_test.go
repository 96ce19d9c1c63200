package pod

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Two failures of one probe have the same text, and are counted as one event.
func TestWithoutExecID(t *testing.T) {
	cause := errors.New("no such program")
	of := func(digit string) error {
		return fmt.Errorf("failed to start exec %q: %w", strings.Repeat(digit, 64), cause)
	}
	one, two := withoutExecID(of("a")), withoutExecID(of("7"))
	if want := "failed to start exec: no such program"; one.Error() != want || two.Error() != want ||
		!errors.Is(one, cause) {
		t.Errorf("%q, %q", one, two)
	}
	if plain := errors.New(`failed to exec "short"`); !errors.Is(withoutExecID(plain), plain) ||
		withoutExecID(plain).Error() != plain.Error() {
		t.Error("another error was changed")
	}
}
