package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2/textlogger"
)

// flat is a slog.Handler without groups: the keys of attributes in a group begin with its name.
type flat struct {
	write func(ctx context.Context, r slog.Record, attrs []slog.Attr) error
	given []slog.Attr
	group string
}

// Enabled lets everything through; the filter before the handler decides.
func (flat) Enabled(context.Context, slog.Level) bool { return true }

// Handle writes a record.
func (f flat) Handle(ctx context.Context, r slog.Record) error {
	attrs := f.given[:len(f.given):len(f.given)]
	r.Attrs(func(a slog.Attr) bool {
		attrs = flatten(attrs, f.group, a)
		return true
	})
	return f.write(ctx, r, attrs)
}

// WithAttrs returns a handler that adds the attributes to its records.
func (f flat) WithAttrs(attrs []slog.Attr) slog.Handler {
	f.given = f.given[:len(f.given):len(f.given)]
	for _, a := range attrs {
		f.given = flatten(f.given, f.group, a)
	}
	return f
}

// WithGroup returns a handler that puts the name before the keys of later attributes.
func (f flat) WithGroup(name string) slog.Handler {
	if name != "" {
		f.group += name + "."
	}
	return f
}

// flatten appends an attribute, or the members of a group.
func flatten(to []slog.Attr, prefix string, a slog.Attr) []slog.Attr {
	if _, text := a.Value.Any().(fmt.Stringer); !text {
		a.Value = a.Value.Resolve() // else it is an object's reference, which stays one value
	}
	if a.Value.Kind() != slog.KindGroup {
		if a.Equal(slog.Attr{}) {
			return to
		}
		a.Key = prefix + a.Key
		return append(to, a)
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, member := range a.Value.Group() {
		to = flatten(to, prefix, member)
	}
	return to
}

// klogTo returns a function that writes records to w as klog writes them, by klog's own code.
func klogTo(w io.Writer) func(context.Context, slog.Record, []slog.Attr) error {
	klog := logr.ToSlogHandler(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(w))))
	return func(ctx context.Context, r slog.Record, attrs []slog.Attr) error {
		out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
		for _, a := range attrs {
			out.AddAttrs(slog.Attr{Key: a.Key, Value: textOf(a.Value)})
		}
		return klog.Handle(ctx, out)
	}
}

// textOf returns the value that klog's text logger shows as klog does: a text for what has one.
func textOf(v slog.Value) slog.Value {
	switch v.Kind() {
	case slog.KindDuration, slog.KindTime:
		return slog.StringValue(v.String())
	case slog.KindAny, slog.KindLogValuer:
		switch v.Any().(type) {
		case error, fmt.Stringer:
			return slog.StringValue(fmt.Sprint(v.Any())) // fmt survives methods that panic
		}
	}
	return v
}

// jsonTo returns a function that writes records to w as the objects of a kubelet's JSON log: ts in
// milliseconds, caller, msg, v if the record is no error, and the attributes.
func jsonTo(w io.Writer) func(context.Context, slog.Record, []slog.Attr) error {
	return func(_ context.Context, r slog.Record, attrs []slog.Attr) error {
		line := &bytes.Buffer{}
		line.WriteString(`{"ts":`)
		line.WriteString(millis(r.Time))
		if r.PC != 0 {
			frame := frameOf(r.PC)
			dir, file := filepath.Split(frame.File)
			caller := filepath.Join(filepath.Base(dir), file) + ":" + strconv.Itoa(frame.Line)
			member(line, "caller", caller)
		}
		member(line, "msg", r.Message)
		if r.Level < slog.LevelError {
			member(line, "v", vOf(r.Level))
		}
		for _, a := range attrs {
			member(line, a.Key, valueOf(a))
		}
		line.WriteString("}\n")
		_, err := w.Write(line.Bytes()) // one call, so that lines stay whole
		return err
	}
}

// millis returns a time in milliseconds since 1970.
func millis(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixNano())/float64(time.Millisecond), 'f', -1, 64)
}

// member appends ,"key":value.
func member(line *bytes.Buffer, key string, value any) {
	line.WriteByte(',')
	encode(line, key)
	line.WriteByte(':')
	encode(line, value)
}

// encode appends a value as JSON, or as a string if JSON cannot express the value.
func encode(line *bytes.Buffer, value any) {
	start := line.Len()
	encoder := json.NewEncoder(line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		line.Truncate(start)
		_ = encoder.Encode(fmt.Sprintf("%+v", value)) // strings can always be encoded
	}
	line.Truncate(line.Len() - 1) // the encoder ends a value with a line feed
}

// podRef is how a kubelet's JSON log has a pod.
type podRef struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// valueOf returns what the JSON of an attribute's value is made of.
func valueOf(a slog.Attr) any {
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		if namespace, name, full := strings.Cut(v.String(), "/"); full && a.Key == "pod" {
			return podRef{Name: name, Namespace: namespace}
		}
	case slog.KindDuration:
		return v.Duration().String()
	case slog.KindTime:
		return json.RawMessage(millis(v.Time()))
	case slog.KindFloat64:
		if f := v.Float64(); math.IsNaN(f) || math.IsInf(f, 0) {
			return v.String()
		}
	case slog.KindAny, slog.KindLogValuer:
		return valueOfAny(v.Any())
	}
	return a.Value.Any()
}

// valueOfAny prefers what a type says of itself: for logs, as an error, as a text. A method that
// panics, as of a nil pointer, makes no agent end.
func valueOfAny(v any) (out any) {
	defer func() {
		if p := recover(); p != nil {
			out = fmt.Sprintf("PANIC=%v", p)
		}
	}()
	if m, ok := v.(interface{ MarshalLog() any }); ok {
		v = m.MarshalLog()
	}
	switch v := v.(type) {
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	}
	return v
}
