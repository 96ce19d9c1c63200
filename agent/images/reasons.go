package images

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/berthd/berth/agent/images/credentials"
)

// The reasons why a container waits for its image; they are the kubelet's.
const (
	ReasonPull        = "ErrImagePull"
	ReasonBackOff     = "ImagePullBackOff"
	ReasonNeverPull   = "ErrImageNeverPull"
	ReasonInvalidName = "InvalidImageName"
	ReasonInspect     = "ImageInspectError"
	ReasonRegistry    = "RegistryUnavailable"
	ReasonSignature   = "SignatureValidationFailed"
	// ReasonCreating is the API's reason for a new container: its image is queued, pulled or
	// imported for the first time.
	ReasonCreating = "ContainerCreating"
)

// The reasons of events; they are the kubelet's.
const (
	eventPulling       = "Pulling"
	eventPulled        = "Pulled"
	eventFailed        = "Failed"
	eventBackOff       = "BackOff"
	eventInspectFailed = "InspectFailed"
	eventNoSecret      = "FailedToRetrieveImagePullSecret"
)

// The reasons of the node's events about archives.
const (
	eventImported     = "ImageImported"
	eventImportFailed = "ImageImportFailed"
)

// maxText limits the text of a failed pull, in bytes. The text contains the registry's answer,
// which may be a whole page.
const maxText = 2048

// failure is the text of a failed pull. Nothing in it is secret.
type failure string

// failureOf joins the errors of a pull's attempts, each once. It removes the credentials that were
// used, because a registry may repeat what was sent to it.
func failureOf(name string, used []credentials.Credential, errs ...error) failure {
	for i, err := range errs {
		errs[i] = errors.New(credentials.Scrub(strings.ToValidUTF8(err.Error(), "\uFFFD"), name, used))
	}
	text := head(utilerrors.NewAggregate(errs).Error(), maxText)
	if text == "" {
		text = "the runtime does not say why"
	}
	return failure(text)
}

// reasonOf returns a failed pull's reason and message. The CRI has two reasons that a runtime
// writes before its message.
func (f failure) reasonOf(image string) (reason, message string) {
	text := string(f)
	if rest, ok := strings.CutPrefix(text, ReasonRegistry); ok {
		return ReasonRegistry, fmt.Sprintf("image pull failed for %s because the registry is unavailable%s",
			image, rest)
	}
	if rest, ok := strings.CutPrefix(text, ReasonSignature); ok {
		return ReasonSignature, fmt.Sprintf("image pull failed for %s because the signature validation failed%s",
			image, rest)
	}
	return ReasonPull, text
}

// head returns the beginning of a text, at most so many bytes.
func head(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	cut := most - len(more)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}

func pullingMessage(image string) string { return fmt.Sprintf("Pulling image %q", image) }

// size formats a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}
