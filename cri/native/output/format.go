package output

import (
	"bytes"
	"time"
)

// Stream is one of the two outputs of a container.
type Stream int

// The streams. A container with a terminal has only Stdout.
const (
	Stdout Stream = iota
	Stderr
)

// String returns the name of the stream in a log.
func (s Stream) String() string { return [...]string{"stdout", "stderr"}[s] }

// maxLine is the longest line of a log, in bytes, as in containerd. A longer line of a container
// becomes several, of which all but the last have the tag P.
const maxLine = 16 << 10

// The tags of lines in a log (kubernetes/design-proposals-archive, node/kubelet-cri-logging.md).
const partialTag, fullTag = "P", "F"

// format returns the lines of a log that some output makes, and how many bytes of the output they
// have used. The beginning of a line is used when its end is there, or when it is as long as a line
// may be. The final output has no more to come, so all of it is used. The same bytes, without what
// was not used of them, make the same lines again.
func format(data []byte, stream Stream, at time.Time, final bool) (lines []byte, used int) {
	stamp := at.UTC().AppendFormat(nil, time.RFC3339Nano)
	line := func(tag string, text []byte) {
		for _, part := range [][]byte{stamp, []byte(stream.String()), []byte(tag)} {
			lines = append(append(lines, part...), ' ')
		}
		lines = append(append(lines, text...), '\n')
	}
	for {
		rest := data[used:]
		end := bytes.IndexByte(rest, '\n')
		switch {
		case end > maxLine || end < 0 && len(rest) >= maxLine:
			line(partialTag, rest[:maxLine])
			used += maxLine
		case end >= 0:
			line(fullTag, rest[:end])
			used += end + 1
		case final && len(rest) > 0:
			line(fullTag, rest)
			return lines, len(data)
		default:
			return lines, used
		}
	}
}
