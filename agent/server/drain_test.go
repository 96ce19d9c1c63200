package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthd/berth/client/api"
)

// drainer notes what it is asked for.
type drainer struct {
	asked []api.DrainRequest
	state string
	err   error
}

func (d *drainer) Drain(req api.DrainRequest) error {
	d.asked = append(d.asked, req)
	d.state = api.Draining
	return d.err
}

func (d *drainer) Undrain() error {
	d.state = api.Open
	return d.err
}

func (d *drainer) Drained() api.Drain { return api.Drain{State: d.state, Left: []string{"ns/pod"}} }

func TestDrain(t *testing.T) {
	for _, c := range []struct {
		method, body string
		err          error
		code         int
		state        string
	}{
		{method: http.MethodGet, code: 200, state: api.Open},
		{method: http.MethodPost, body: `{"graceSeconds": 3, "hold": true}`, code: 200, state: api.Draining},
		{method: http.MethodPost, code: 200, state: api.Draining},
		{method: http.MethodPost, body: `{"graceSeconds": -1}`, code: 400, state: api.Open},
		{method: http.MethodPost, body: `what`, code: 400, state: api.Open},
		{method: http.MethodPost, err: errors.New("disk full"), code: 500, state: api.Draining},
		{method: http.MethodDelete, code: 200, state: api.Open},
		{method: http.MethodDelete, err: errors.New("not yet"), code: 409, state: api.Open},
	} {
		d := &drainer{state: api.Open, err: c.err}
		s := &Server{deps: Deps{Drainer: d}}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(c.method, api.PathDrain, strings.NewReader(c.body))
		map[string]http.HandlerFunc{
			http.MethodGet:    s.drained,
			http.MethodPost:   s.drain,
			http.MethodDelete: s.undrain,
		}[c.method](w, r)
		if w.Code != c.code || d.state != c.state {
			t.Errorf("%s %s: %d, then %s; %s", c.method, c.body, w.Code, d.state, w.Body)
		}
		if c.code == 200 && !strings.Contains(w.Body.String(), `"left":["ns/pod"]`) {
			t.Errorf("%s: %s", c.method, w.Body)
		}
		if c.body != "" && c.code == 200 && (len(d.asked) != 1 || *d.asked[0].GraceSeconds != 3 || !d.asked[0].Hold) {
			t.Errorf("asked for %+v", d.asked)
		}
	}
}
