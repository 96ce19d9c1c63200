package server

import (
	"errors"
	"strings"
	"testing"
)

func TestPruneImages(t *testing.T) {
	const path = "/berth/v1/images/prune"
	f := &fixture{}
	r := start(t, f)
	for _, c := range []struct {
		body string
		err  error
		code int
		want string
	}{
		{body: `{"dryRun": true}`, code: 200, want: `{"items":[]}`},
		{body: ``, code: 200, want: `{"items":[{"id":"sha256:2","tags":["b:1"],"size":20}]}`},
		{body: `{}`, err: errors.New("busy"), code: 200, want: `"error":"busy"}`},
		{body: `{`, code: 400, want: `reading the request to remove images: unexpected EOF`},
	} {
		f.pruneErr = c.err
		code, text := r.ask(t, "POST", path, strings.NewReader(c.body))
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%q: %d %s, want %d %s", c.body, code, text, c.code, c.want)
		}
	}
	if code, _ := r.ask(t, "GET", path, nil); code != 405 && code != 404 {
		t.Errorf("a GET is answered with %d", code)
	}
}
