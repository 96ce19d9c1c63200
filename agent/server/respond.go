package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answerError is an error with its HTTP code.
type answerError struct {
	code    int
	message string
}

// Error returns the message.
func (e *answerError) Error() string { return e.message }

// failure returns an error with an HTTP code.
func failure(code int, format string, args ...any) error {
	return &answerError{code: code, message: fmt.Sprintf(format, args...)}
}

// fail answers with an error in the form of the Kubernetes API, a metav1.Status.
func fail(w http.ResponseWriter, code int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason(code), Message: fmt.Sprintf(format, args...),
	})
}

// failWith answers with an error and the code of the error's class.
func failWith(w http.ResponseWriter, err error) { fail(w, codeOf(err), "%s", err.Error()) }

// failPlainly answers as failWith does, but it sends only the message if the caller does not ask
// for JSON. A kubelet answers requests for logs in this way, and the API server passes the text on
// unchanged.
func failPlainly(w http.ResponseWriter, r *http.Request, err error) {
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		failWith(w, err)
		return
	}
	w.Header().Set("Content-Type", plainText)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(codeOf(err))
	_, _ = io.WriteString(w, err.Error())
}

// plainText is the content type of answers for people.
const plainText = "text/plain; charset=utf-8"

// codeOf returns the code of an error's class.
func codeOf(err error) int {
	code := http.StatusInternalServerError
	var known *answerError
	switch {
	case errors.As(err, &known):
		code = known.code
	case errdefs.IsNotFound(err):
		code = http.StatusNotFound
	case errdefs.IsUnavailable(err):
		code = http.StatusServiceUnavailable
	case errdefs.IsDeadlineExceeded(err):
		code = http.StatusGatewayTimeout
	case errdefs.IsNotImplemented(err):
		code = http.StatusNotImplemented
	}
	return code
}

func reason(code int) metav1.StatusReason {
	switch code {
	case http.StatusBadRequest:
		return metav1.StatusReasonBadRequest
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusNotFound:
		return metav1.StatusReasonNotFound
	case http.StatusConflict:
		return metav1.StatusReasonConflict
	case http.StatusMethodNotAllowed:
		return metav1.StatusReasonMethodNotAllowed
	case http.StatusUnprocessableEntity:
		return metav1.StatusReasonInvalid
	case http.StatusRequestEntityTooLarge:
		return metav1.StatusReasonRequestEntityTooLarge
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return metav1.StatusReasonTimeout
	}
	return metav1.StatusReasonInternalError
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	answerJSON(w, data, err)
}

// answerJSON writes a value that has been encoded, or says that it could not be.
func answerJSON(w http.ResponseWriter, data []byte, err error) {
	if err != nil {
		fail(w, http.StatusInternalServerError, "encoding the answer: %v", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // other requests may write the same data, so that nothing is appended to it
	_, _ = io.WriteString(w, "\n")
}

// refusal converts the answer of net/http's own error handlers into a Status.
type refusal struct {
	http.ResponseWriter
	code int
}

// WriteHeader keeps the code for later.
func (r *refusal) WriteHeader(code int) { r.code = code }

// Write drops the text.
func (r *refusal) Write(p []byte) (int, error) { return len(p), nil }
