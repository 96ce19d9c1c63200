package pieces

import (
	"net/http"
	"time"
)

// lastWords is how long a piece may take that is written after the end of the whole answer, such as
// why the answer has ended.
const lastWords = time.Second

// Writer is the ResponseWriter of a request, each piece of whose answer must be sent within a time.
// Between the pieces, there is no deadline: HTTP/2 would end the stream at it. Make it with [New].
type Writer struct {
	http.ResponseWriter
	within time.Duration
	until  time.Time
}

// New returns the writer of an answer. Call [Writer.End] when the answer is whole.
func New(w http.ResponseWriter, within time.Duration) *Writer {
	return &Writer{ResponseWriter: w, within: within}
}

// Unwrap is for http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Until bounds the time of the whole answer.
func (w *Writer) Until(end time.Time) { w.until = end }

// Write sends a piece.
func (w *Writer) Write(p []byte) (int, error) {
	w.deadline(w.next())
	defer w.deadline(time.Time{})
	return w.ResponseWriter.Write(p)
}

// End gives a time to what is still to be sent.
func (w *Writer) End() { w.deadline(w.next()) }

// next returns the deadline of the next piece.
func (w *Writer) next() time.Time {
	now := time.Now()
	at := now.Add(w.within)
	switch {
	case w.until.IsZero() || at.Before(w.until):
		return at
	case now.Before(w.until):
		return w.until
	}
	return now.Add(lastWords)
}

func (w *Writer) deadline(at time.Time) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(at)
}
