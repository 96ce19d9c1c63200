package agent

import "regexp"

// execID is the id that containerd gives to each single exec, as its errors tell it.
var execID = regexp.MustCompile(`( exec) "[0-9a-f]{64}"`)

// unnumbered is an error whose text is the same each time that the same happens.
type unnumbered struct {
	error

	text string
}

// Error is the text without the exec's id.
func (u *unnumbered) Error() string { return u.text }

// Unwrap returns the error as the runtime gave it.
func (u *unnumbered) Unwrap() error { return u.error }

// withoutExecID leaves out of an error's text which exec it was: else every run of a probe that cannot run has an event of its own, and these crowd out the others.
func withoutExecID(err error) error {
	text := execID.ReplaceAllString(err.Error(), "$1")
	if text == err.Error() {
		return err
	}
	return &unnumbered{err, text}
}
