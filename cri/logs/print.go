package logs

import (
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stampFormat is the format of times. It has a fixed width.
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// printer writes lines as the options say.
type printer struct {
	streams map[runtimeapi.LogStreamType]io.Writer
	since   time.Time
	stamps  bool
	limited bool
	remain  int64 // bytes, if limited

	fresh   bool // a new line of output begins
	inside  bool // the last piece did not end its line, whose header is this:
	current header
	skip    bool // the line of the last piece is not a log line
	corrupt int  // how many such lines there were
}

func newPrinter(out Output, opts Options) printer {
	p := printer{
		since: opts.Since, stamps: opts.Timestamps, fresh: true, streams: map[runtimeapi.LogStreamType]io.Writer{},
	}
	if out.Stdout != nil && opts.Stream != v1.LogStreamStderr {
		p.streams[runtimeapi.Stdout] = out.Stdout
	}
	if out.Stderr != nil && opts.Stream != v1.LogStreamStdout {
		p.streams[runtimeapi.Stderr] = out.Stderr
	}
	if opts.LimitBytes != nil {
		p.limited, p.remain = true, *opts.LimitBytes
	}
	return p
}

// print writes a piece and reports whether a line of the log ended with the piece.
func (p *printer) print(line piece) (ended bool, err error) {
	ends := line.ends()
	content := []byte(line)
	first := !p.inside
	if first {
		h, rest, err := parse(line)
		p.current, p.skip = h, err != nil
		if p.skip {
			p.corrupt++
		}
		content = rest
	}
	p.inside = !ends
	if p.skip {
		return false, nil
	}
	if p.current.partial && ends {
		content = content[:len(content)-1]
	}
	stamp := first && p.fresh
	p.fresh = len(content) == 0 && first || len(content) > 0 && content[len(content)-1] == '\n'
	return ends, p.write(content, stamp)
}

// write writes content to its stream, up to the limit.
func (p *printer) write(content []byte, stamp bool) error {
	w := p.streams[p.current.stream]
	if w == nil || !p.since.IsZero() && p.current.time.Before(p.since) {
		return nil
	}
	if stamp && p.stamps {
		content = append(append(p.current.time.AppendFormat(nil, stampFormat), ' '), content...)
	}
	if p.limited {
		content = content[:min(int64(len(content)), p.remain)]
		p.remain -= int64(len(content))
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("write to %s: %w", p.current.stream, err)
	}
	if p.limited && p.remain <= 0 {
		return errLimit
	}
	return nil
}

// brokenOff ends an unfinished line, because another file follows.
func (p *printer) brokenOff() {
	p.inside = false
}
