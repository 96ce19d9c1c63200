// Package journal writes the log to systemd's journal, with fields to search for: journalctl -u
// berth POD=web.
//
// Purpose: a [Handler] for slog that sends each record to the journal's own socket. The message is
// the text that a terminal would show. The attributes about a pod, a container or a step are
// fields, too.
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

// The fields of an entry, in addition to the journal's own.
const (
	FieldNamespace = "NAMESPACE"
	FieldPod       = "POD"
	FieldPodUID    = "POD_UID"
	FieldContainer = "CONTAINER"
	FieldStep      = "STEP"
)

// fields maps the attributes that become a field to the field's name.
func fields() map[string]string {
	return map[string]string{"uid": FieldPodUID, "container": FieldContainer, "step": FieldStep}
}

// Send sends an entry, as journal.Send of go-systemd does.
type Send func(message string, priority journal.Priority, vars map[string]string) error

// Handler is a slog.Handler. Make it with [New].
type Handler struct {
	send Send
	// instead receives the records that the journal does not accept.
	instead slog.Handler
	// given are the attributes of With; their keys include the names of their groups. group is the
	// prefix of later attributes.
	given []slog.Attr
	group string
}

// Connected reports whether the process's standard error is the journal, which systemd says to its
// services in $JOURNAL_STREAM.
func Connected() bool {
	ok, err := journal.StderrIsJournalStream()
	return ok && err == nil && journal.Enabled()
}

// New returns a handler that sends to the journal. Records that cannot be sent go to instead, which
// also decides which levels are enabled.
func New(instead slog.Handler) *Handler { return &Handler{send: journal.Send, instead: instead} }

// Enabled reports whether records of the level are written.
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

// WithAttrs returns a handler that adds the attributes to its records.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := *h
	out.given = append([]slog.Attr{}, h.given...)
	for _, a := range attrs {
		a.Key = h.group + a.Key
		out.given = append(out.given, a)
	}
	return &out
}

// WithGroup returns a handler that puts the name before the keys of later attributes.
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

// add writes one attribute as key=value, and also as a field if it has one.
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
	plain := s != "" &&
		!strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '"' || r == '=' || r == 0x7f })
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// priority converts a level to the journal's priority (sd-daemon(3)).
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
