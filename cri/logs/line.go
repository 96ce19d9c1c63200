package logs

import (
	"bytes"
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// header is the part of a line before its content.
type header struct {
	time    time.Time
	stream  runtimeapi.LogStreamType
	partial bool
}

// errNoLine is the error of a line that is not in the format.
var errNoLine = errors.New("not a log line")

// parse splits a line, or the beginning of one, into its header and its content. The content keeps
// the line's end.
func parse(line []byte) (h header, content []byte, err error) {
	stamp, rest, found := bytes.Cut(line, space)
	if !found {
		return header{}, nil, errNoLine
	}
	stream, rest, found := bytes.Cut(rest, space)
	if !found {
		return header{}, nil, errNoLine
	}
	tags, content, found := bytes.Cut(rest, space)
	if !found {
		return header{}, nil, errNoLine
	}
	h.stream = runtimeapi.LogStreamType(stream)
	if h.stream != runtimeapi.Stdout && h.stream != runtimeapi.Stderr {
		return header{}, nil, errNoLine
	}
	if h.time, err = time.Parse(time.RFC3339Nano, string(stamp)); err != nil {
		return header{}, nil, errNoLine
	}
	// Later versions may add tags. The first tag is the one that says whether the line is a part.
	first, _, _ := bytes.Cut(tags, []byte(runtimeapi.LogTagDelimiter))
	h.partial = runtimeapi.LogTag(first) == runtimeapi.LogTagPartial
	return h, content, nil
}

var space = []byte{' '}
