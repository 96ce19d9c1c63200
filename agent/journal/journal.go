// Package journal writes the log to systemd's journal, with fields to look for: journalctl -u berth POD=web.
//
// Purpose: a [Handler] for slog that sends each record to the journal's own socket. The message is the text that a terminal would get; what a record says
// about a pod, a container or a step are fields besides.
//
// Truth owned: none. Concurrency: a handler is safe for concurrent use.
package journal

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
)

// The fields of an entry, besides the journal's own.
const (
	FieldNamespace = "NAMESPACE"
	FieldPod       = "POD"
	FieldPodUID    = "POD_UID"
	FieldContainer = "CONTAINER"
	FieldStep      = "STEP"
)

// fields are the attributes that become fields of their own.
func fields() map[string]string {
	return map[string]string{"uid": FieldPodUID, "container": FieldContainer, "step": FieldStep}
}

// Send sends an entry; journal.Send of go-systemd is one.
type Send func(message string, priority journal.Priority, vars map[string]string) error

// Handler is a slog.Handler. Make it with [New].
type Handler struct {
	send Send
	// instead gets what the journal does not take.
	instead slog.Handler
	// given are the attributes of With, with the names of their groups; group is the prefix of those to come.
	given []slog.Attr
	group string
}

// Connected reports whether the process's standard error is the journal, as systemd says it to its services ($JOURNAL_STREAM).
func Connected() bool {
	ok, err := journal.StderrIsJournalStream()
	return ok && err == nil && journal.Enabled()
}

// New returns a handler that sends to the journal, and to instead what cannot be sent. What instead is enabled for, the handler is.
func New(instead slog.Handler) *Handler { return &Handler{send: journal.Send, instead: instead} }

// Enabled tells whether records of the level are written.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.instead.Enabled(ctx, level)
}

// Handle writes a record.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	message, vars := h.entry(r)
	if err := h.send(message, priority(r.Level), vars); err == nil {
		return nil
	}
	plain := r.Clone()
	plain.AddAttrs(h.given...)
	return h.instead.Handle(ctx, plain)
}

// WithAttrs returns a handler whose records have the attributes, too.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := *h
	out.given = append([]slog.Attr{}, h.given...)
	for _, a := range attrs {
		a.Key = h.group + a.Key
		out.given = append(out.given, a)
	}
	return &out
}

// WithGroup returns a handler that puts the name before the attributes to come.
func (h *Handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	out := *h
	out.group += name + "."
	return &out
}

// entry returns a record's text and fields.
func (h *Handler) entry(r slog.Record) (message string, vars map[string]string) {
	var text strings.Builder
	text.WriteString(r.Message)
	vars = map[string]string{"SYSLOG_IDENTIFIER": "berth", "SYSLOG_PID": strconv.Itoa(os.Getpid())}
	for _, a := range h.given {
		add(&text, vars, "", a)
	}
	r.Attrs(func(a slog.Attr) bool {
		add(&text, vars, h.group, a)
		return true
	})
	return text.String(), vars
}

// add writes one attribute as key=value, and as a field where it has one.
func add(text *strings.Builder, vars map[string]string, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range v.Group() {
			add(text, vars, prefix, member)
		}
		return
	}
	if a.Equal(slog.Attr{}) {
		return
	}
	value := v.String()
	fmt.Fprintf(text, " %s%s=%s", prefix, a.Key, quoted(value))
	if a.Key == "pod" {
		if namespace, name, full := strings.Cut(value, "/"); full {
			vars[FieldNamespace], vars[FieldPod] = namespace, name
		} else {
			vars[FieldPod] = value
		}
	}
	if field, ok := fields()[a.Key]; ok && value != "" {
		vars[field] = value
	}
}

// quoted returns a value as slog's text handler writes it.
func quoted(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '"' || r == '=' || r == 0x7f })
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// priority is the journal's name for a level (sd-daemon(3)).
func priority(level slog.Level) journal.Priority {
	switch {
	case level >= slog.LevelError:
		return journal.PriErr
	case level >= slog.LevelWarn:
		return journal.PriWarning
	case level >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}
