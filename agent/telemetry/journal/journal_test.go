package journal

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
)

// entry is an entry that was sent.
type entry struct {
	message  string
	priority journal.Priority
	vars     map[string]string
}

// to returns a logger and where its entries go; err is the result of each send.
func to(err error) (log *slog.Logger, sent *[]entry, instead *bytes.Buffer) {
	sent, instead = &[]entry{}, &bytes.Buffer{}
	h := New(slog.NewTextHandler(instead, &slog.HandlerOptions{Level: slog.LevelInfo}))
	h.send = func(message string, priority journal.Priority, vars map[string]string) error {
		*sent = append(*sent, entry{message, priority, vars})
		return err
	}
	return slog.New(h), sent, instead
}

func TestFields(t *testing.T) {
	log, sent, _ := to(nil)
	log.With("pod", "shop/web", "uid", "u-1").Error("step failed", "step", "sandbox", "container", "main",
		"err", errors.New("no network"))
	log.WithGroup("node").Warn("watch out", "pod", "alone", slog.Group("disk", "free", 3), "empty", "")
	log.Debug("not enabled")
	if len(*sent) != 2 {
		t.Fatalf("%d entries", len(*sent))
	}
	first, second := (*sent)[0], (*sent)[1]
	if want := `step failed pod=shop/web uid=u-1 step=sandbox container=main err="no network"`; first.message != want {
		t.Errorf("message %q, want %q", first.message, want)
	}
	for field, want := range map[string]string{
		FieldNamespace:      "shop",
		FieldPod:            "web",
		FieldPodUID:         "u-1",
		FieldStep:           "sandbox",
		FieldContainer:      "main",
		"SYSLOG_IDENTIFIER": "berth",
	} {
		if got := first.vars[field]; got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	if first.priority != journal.PriErr || second.priority != journal.PriWarning {
		t.Errorf("priorities %d, %d", first.priority, second.priority)
	}
	if want := `watch out node.pod=alone node.disk.free=3 node.empty=""`; second.message != want {
		t.Errorf("message %q, want %q", second.message, want)
	}
	if second.vars[FieldPod] != "alone" || second.vars[FieldNamespace] != "" {
		t.Errorf("fields %v", second.vars)
	}
}

func TestJournalGone(t *testing.T) {
	log, _, instead := to(errors.New("no journal"))
	log.With("pod", "shop/web").Info("hello", "n", 1)
	if got := instead.String(); !strings.Contains(got, "msg=hello") || !strings.Contains(got, "pod=shop/web") ||
		!strings.Contains(got, "n=1") {
		t.Errorf("written instead: %q", got)
	}
}

func TestEnabledAsInstead(t *testing.T) {
	log, _, _ := to(nil)
	if log.Enabled(context.Background(), slog.LevelDebug) || !log.Enabled(context.Background(), slog.LevelInfo) {
		t.Error("the level is not that of the other handler")
	}
}
