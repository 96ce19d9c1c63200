package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/internal/beneath"
)

var (
	// ErrUnsupported means that the pod's spec asks for something that this node does not do.
	// Trying again does not help.
	ErrUnsupported = errors.New("unsupported")
	// ErrUnprocessed means that the volume behind a claim is not known, or is not available now.
	ErrUnprocessed = errors.New("not processed")
	// ErrNotFound means that a ConfigMap, a Secret or a key in one is missing.
	ErrNotFound = errors.New("not found")
	// ErrMounted means that something is still mounted beneath a directory, so it was not deleted.
	ErrMounted = beneath.ErrMounted
)

// VolumeError says why a volume of a pod is not up, or not up to date. Its text is that of the
// kubelet's FailedMount event.
type VolumeError struct {
	// Volume is the volume's name in the pod.
	Volume string
	Err    error
}

// Error returns the text of the event.
func (e *VolumeError) Error() string {
	if errors.Is(e.Err, ErrUnprocessed) {
		return fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=[%s], unattached volumes=[], failed "+
			"to process volumes=[%s]: %v", e.Volume, e.Volume, e.Err)
	}
	operation, name := "MountVolume.SetUp failed", e.Volume
	if failed, ok := errors.AsType[*csi.Failed](e.Err); ok {
		operation = failed.Operation + " failed"
		if failed.While != "" {
			operation += " while " + failed.While
		}
	}
	if of, ok := errors.AsType[*ofVolume](e.Err); ok {
		name = of.name
	}
	return fmt.Sprintf("%s for volume %q : %v", operation, name, e.Err)
}

// ofVolume is an error of a PersistentVolume. Events have that volume's name instead of the
// volume's name in the pod.
type ofVolume struct {
	name string
	err  error
}

// Error returns the cause's text.
func (e *ofVolume) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *ofVolume) Unwrap() error { return e.err }

// of marks an error as that of a PersistentVolume; nil stays nil.
func of(pv *v1.PersistentVolume, err error) error {
	if err == nil {
		return nil
	}
	return &ofVolume{name: pv.Name, err: err}
}

// Reason is the reason of the kubelet's event.
func (e *VolumeError) Reason() string {
	if failed, ok := errors.AsType[*csi.Failed](e.Err); ok && strings.HasPrefix(failed.Operation, "MapVolume.") {
		return "FailedMapVolume"
	}
	return "FailedMount"
}

// Unwrap returns the cause.
func (e *VolumeError) Unwrap() error { return e.Err }

// Unmounted returns the text of the event about all volumes that a pod misses after it has waited
// for them in vain. The kubelet logs the same words. The text is empty if other events report all
// of them: for a claim that cannot be processed, and for a volume that can never be brought up.
func Unmounted(missing []*VolumeError) string {
	var unmounted, unattached, unprocessed []string
	silent := false
	for _, f := range missing {
		unmounted = append(unmounted, f.Volume)
		_, waits := errors.AsType[*csi.NotAttached](f.Err)
		switch {
		case waits:
			unattached = append(unattached, f.Volume)
			silent = true
		case errors.Is(f, ErrUnprocessed):
			unprocessed = append(unprocessed, f.Volume)
		case !errors.Is(f, ErrUnsupported):
			silent = true
		}
	}
	if !silent {
		return ""
	}
	for _, names := range [][]string{unmounted, unattached, unprocessed} {
		slices.Sort(names)
	}
	return fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=%v, unattached volumes=%v, failed to "+
		"process volumes=%v: %v",
		unmounted, unattached, unprocessed, context.DeadlineExceeded)
}

// Failures returns the volume errors in an error of [Manager.Ensure], one for each volume that
// failed, in the order of the pod's spec.
func Failures(err error) []*VolumeError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var failures []*VolumeError
		for _, e := range joined.Unwrap() {
			failures = append(failures, Failures(e)...)
		}
		return failures
	}
	if failure, ok := errors.AsType[*VolumeError](err); ok {
		return []*VolumeError{failure}
	}
	return nil
}

// classified is an error with its own text that is also a sentinel of this package.
type classified struct {
	text  string
	class error
}

// Error returns the text.
func (e *classified) Error() string { return e.text }

// Is reports whether target is the sentinel.
func (e *classified) Is(target error) bool { return target == e.class }

// unsupported makes an [ErrUnsupported]; the text names the field.
func unsupported(format string, args ...any) error {
	return &classified{text: fmt.Sprintf(format, args...), class: ErrUnsupported}
}

// notFound makes an [ErrNotFound].
func notFound(format string, args ...any) error {
	return &classified{text: fmt.Sprintf(format, args...), class: ErrNotFound}
}

// checkName refuses a name that is not a single path component. API validation refuses it, too. The
// check guards against callers without validation, above all against a pod UID, which the API does
// not restrict.
func checkName(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > maxNameLength {
		return fmt.Errorf("%s name %q cannot be a file name", what, name)
	}
	return nil
}
