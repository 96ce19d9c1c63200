package pieces

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// recorder notes for how long from now each deadline was.
type recorder struct {
	*httptest.ResponseRecorder
	set []time.Duration
}

func (r *recorder) SetWriteDeadline(at time.Time) error {
	if at.IsZero() {
		r.set = append(r.set, 0)
	} else {
		r.set = append(r.set, time.Until(at))
	}
	return nil
}

// TestDeadlines shows which deadline each piece has, and that there is none between them.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{ResponseRecorder: httptest.NewRecorder()}
		w := New(r, 10*time.Second)
		write := func() {
			t.Helper()
			if _, err := io.WriteString(w, "a"); err != nil {
				t.Fatal(err)
			}
		}
		write()
		w.Until(time.Now().Add(15 * time.Second))
		write()
		time.Sleep(8 * time.Second)
		write()
		time.Sleep(8 * time.Second)
		write()
		w.End()
		want := []time.Duration{
			10 * time.Second, 0, 10 * time.Second, 0, 7 * time.Second, 0, lastWords, 0, lastWords,
		}
		if !slices.Equal(r.set, want) || r.Body.String() != "aaaa" {
			t.Errorf("the deadlines were %v, want %v; the answer is %q", r.set, want, r.Body)
		}
	})
}

// TestReaderThatReadsNothing has a reader that reads nothing of an answer without an end: its
// handler ends.
func TestReaderThatReadsNothing(t *testing.T) {
	for name, until := range map[string]time.Duration{"a piece": 0, "the whole": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			within := time.Millisecond
			if until > 0 {
				within = time.Hour
			}
			ended := make(chan error, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				out := New(w, within)
				defer out.End()
				if until > 0 {
					out.Until(time.Now().Add(until))
				}
				var err error
				for piece := make([]byte, 1<<20); err == nil; {
					_, err = out.Write(piece)
				}
				ended <- err
			}))
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if err := <-ended; err == nil {
				t.Error("the answer has no error")
			}
		})
	}
}
