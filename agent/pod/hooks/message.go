package hooks

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxReported is how much of an error is in an event, in bytes: there are many events, and they are
// kept in memory.
const maxReported = 1024

// exitError is the error of a command whose exit code was not 0.
type exitError struct {
	command []string
	code    int
}

// Error is the kubelet's text.
func (e *exitError) Error() string {
	return fmt.Sprintf("command '%s' exited with %d", strings.Join(e.command, " "), e.code)
}

// Message returns the message of the event about a hook that failed with err. reason is one of this
// package's reasons. The message has the kubelet's words, and then the cause; for a command the
// cause is its exit code. The message has neither the hook itself nor its output: both may hold
// more than an event's readers should see.
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

// innermost returns the cause that an error of [Runner.Run] wraps, without the words around it.
func innermost(err error) error {
	switch e := err.(type) { //nolint:errorlint // one layer after the other
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return inner
		}
	case interface{ Unwrap() []error }:
		if all := e.Unwrap(); len(all) > 0 {
			return all[len(all)-1] // the cause of the context's end is the last one
		}
	}
	return err
}

// end returns the end of a text, at most as much as an event has room for.
func end(text string) string {
	if len(text) <= maxReported {
		return text
	}
	from := len(text) - maxReported + len("…")
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return "…" + text[from:]
}
