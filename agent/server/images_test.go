package server

import (
	"errors"
	"net/http"
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

func TestRemoveImage(t *testing.T) {
	r := start(t, &fixture{})
	for name, want := range map[string]struct {
		code int
		text string
	}{
		"old:1":   {200, `"id":"sha256:1"`},
		"used:1":  {409, "used:1: pod default/web names it"},
		"stuck:1": {500, "busy"},
		"nope:1":  {404, "no such image: nope:1"},
		"":        {404, "no such image"},
	} {
		code, text := r.ask(t, http.MethodDelete, "/berth/v1/images?name="+name, nil)
		if code != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
}

func TestPullImage(t *testing.T) {
	r := start(t, &fixture{})
	for body, want := range map[string]struct {
		code int
		text string
	}{
		`{"image": "good:1"}`: {200, `"id":"sha256:good"`},
		`{"image": "bad:1"}`:  {500, "pulling image bad:1: ErrImagePull: not found"},
		`{}`:                  {400, "it must name an image"},
		``:                    {400, "it must name an image"},
	} {
		code, text := r.ask(t, http.MethodPost, "/berth/v1/images/pull", strings.NewReader(body))
		if code != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
}
