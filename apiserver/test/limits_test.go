//go:build cluster

package test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// slow is a body whose second half never comes. begun is closed when the first half was taken, end
// when the client gives up the body.
type slow struct {
	begun, end chan struct{}
	first      bool
	once       sync.Once
}

// Close ends a Read that waits.
func (b *slow) Close() error {
	b.once.Do(func() { close(b.end) })
	return nil
}

// Read gives the first half, and then waits for the end.
func (b *slow) Read(p []byte) (int, error) {
	if !b.first {
		b.first = true
		return copy(p, `{"metadata":`), nil
	}
	select {
	case <-b.begun:
	default:
		close(b.begun)
	}
	<-b.end
	return 0, errors.New("the test is over")
}

// TestLimits shows that requests which take their time are bounded in number and in time: while one
// write waits for its body another one is refused with 429, and the first gets an answer after the
// time that requests have.
func TestLimits(t *testing.T) {
	const token = "limits-token"
	tokens := "limits-token,writer,1\n"
	s := prepare(t, shortFolder(t)+"/data", "--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=1",
		"--max-requests-inflight=50", "--request-timeout=20s")
	s.args = append(s.args, "--token-auth-file", s.write(t, "tokens.csv", tokens))
	s.start(t)
	s.kubectl(t, "create", "clusterrolebinding", "writer", "--clusterrole=cluster-admin", "--user=writer")
	const path = "/api/v1/namespaces/default/configmaps"
	s.await(t, "the right is known", func() error {
		if code, text := s.ask(t, http.MethodGet, path, token, "", nil); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	object := func() io.Reader { return strings.NewReader(`{"metadata":{"generateName":"limits-"}}`) }
	var first string
	s.await(t, "a second write is refused beside one that waits", func() error {
		body, answered := &slow{begun: make(chan struct{}), end: make(chan struct{})}, make(chan string, 1)
		defer body.Close()
		go func() { answered <- s.post(path, token, body) }()
		<-body.begun
		for code := 0; code != http.StatusTooManyRequests; {
			var text string
			if code, text = s.ask(t, http.MethodPost, path, token, "application/json", object()); code !=
				http.StatusTooManyRequests && code != http.StatusCreated {
				return fmt.Errorf("%d %s", code, text)
			}
			select {
			case first = <-answered:
				return fmt.Errorf("the first write has ended: %s", first)
			default:
			}
		}
		if code, text := s.ask(t, http.MethodGet, path, token, "", nil); code != http.StatusOK {
			t.Errorf("a read beside it: %d %.200s", code, text)
		}
		if first = <-answered; strings.HasPrefix(first, "429 ") {
			return errors.New("the controllers' own writes have refused the first one, too")
		}
		return nil
	})
	if !strings.HasPrefix(first, "504 ") && !strings.HasPrefix(first, "408 ") {
		t.Errorf("the answer to a body that does not come is %.300s", first)
	}
	s.await(t, "writes go on", func() error {
		if code, text := s.ask(t, http.MethodPost, path, token, "application/json", object()); code !=
			http.StatusCreated {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
}

// post sends a body of any length, and returns the answer's code and text.
func (s *server) post(path, token string, body io.Reader) string {
	r, err := http.NewRequest(http.MethodPost, s.url+path, body)
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}}
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return fmt.Sprintf("%d %s", answer.StatusCode, text)
}
