package hooks

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxTold is how much of an error an event tells, in bytes: events are many, and kept in memory.
const maxTold = 1024

// exitError is the error of a command that ended with another code than 0.
type exitError struct {
	command []string
	code    int
}

// Error is the kubelet's text.
func (e *exitError) Error() string {
	return fmt.Sprintf("command '%s' exited with %d", strings.Join(e.command, " "), e.code)
}

// Message returns the message of the event about a hook that failed with err, reason being one of this package's: the kubelet's words, and behind them why. Of a
// command that is its exit code. Neither the hook itself is repeated nor what it wrote: either may hold more than an event's readers should see.
func Message(reason string, err error) string {
	text := strings.TrimPrefix(reason, "Failed") + " failed"
	var exit *exitError
	var request *url.Error
	switch {
	case errors.As(err, &exit):
		return text + fmt.Sprintf(": the command exited with %d", exit.code)
	case errors.As(err, &request):
		err = request.Err
	default:
		err = innermost(err)
	}
	if err == nil {
		return text
	}
	return text + ": " + end(err.Error())
}

// innermost returns what an error of [Runner.Run] wraps: the cause, without the words around it.
func innermost(err error) error {
	switch e := err.(type) { //nolint:errorlint // one layer after the other
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return inner
		}
	case interface{ Unwrap() []error }:
		if all := e.Unwrap(); len(all) > 0 {
			return all[len(all)-1] // the cause of the context's end stands last
		}
	}
	return err
}

// end returns the end of a text, as much as an event tells.
func end(text string) string {
	if len(text) <= maxTold {
		return text
	}
	from := len(text) - maxTold + len("…")
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return "…" + text[from:]
}
