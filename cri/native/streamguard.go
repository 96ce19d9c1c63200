package native

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/streamguard"
)

// streamsKey is the parameter of a stream's URL that says how many streams of SPDY the client may
// open. The library waits for ever with those that it does not expect, also when the client has
// left.
const streamsKey = "streams"

// withStreams adds to a stream's URL how many streams its client opens: one for errors, those that
// are asked for, and one for the sizes of a terminal.
func withStreams(target string, asked ...bool) string {
	n := 1
	for _, is := range asked {
		if is {
			n++
		}
	}
	return target + "?" + streamsKey + "=" + strconv.Itoa(n)
}

// guardStreams bounds what a client can have the handler keep.
func guardStreams(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guard := func(from io.Reader, _ func()) io.Reader { return streamguard.Messages(from, false) }
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			streams := -1 // those of a port-forward come and go
			if text := r.URL.Query().Get(streamsKey); text != "" {
				streams, _ = strconv.Atoi(text)
			}
			guard = func(from io.Reader, unread func()) io.Reader {
				return streamguard.Frames(from, streams, unread)
			}
		}
		handler.ServeHTTP(streamguard.Writer(w, guard), r)
	})
}
