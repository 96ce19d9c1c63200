package remote

import (
	"errors"

	"github.com/containerd/errdefs"
)

// ignoreNotFound makes the removal of what does not exist a success.
func ignoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// errNoAnswer is the error of a runtime that answered without the part that was asked for.
var errNoAnswer = errors.New("the runtime's answer is empty")
