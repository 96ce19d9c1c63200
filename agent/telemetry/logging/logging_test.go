package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// made is a log with its streams.
type made struct {
	*Log
	errors, info stream
}

// stream is a buffer that several goroutines may use.
type stream struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *stream) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.Reset()
}

// logOf returns a log with a kubelet's defaults and the changes.
func logOf(format string, change func(c *logsapi.LoggingConfiguration)) *made {
	m := &made{}
	c := logsapi.NewLoggingConfiguration()
	if change != nil {
		change(c)
	}
	m.Log = New(Options{Config: *c, Format: format, Err: &m.errors, Info: &m.info})
	return m
}

// object decodes a line of JSON.
func object(t *testing.T, line string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(line), &out); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return out
}

func TestJSONLinesAsAKubelets(t *testing.T) {
	m := logOf(FormatJSON, func(c *logsapi.LoggingConfiguration) { c.Verbosity = 4 })
	before := float64(time.Now().UnixNano()) / 1e6
	log := m.Logger()
	log.With("pod", "shop/web").WithGroup("disk").Info("a <b>", "free", 3, "wait", 2*time.Second,
		slog.Group("inner", "list", []string{"x"}))
	log.Error("no way", "err", errors.New("broken \"here\""), "ref", klog.KRef("ns", "n"))
	log.Debug("odd", "f", func() {}, "nil", (*failing)(nil), "at", time.Unix(1, 500_000_000))
	log.Warn("careful")
	lines := strings.Split(strings.TrimSuffix(m.errors.String(), "\n"), "\n")
	if len(lines) != 4 {
		t.Fatalf("lines: %q", lines)
	}
	const head = `^\{"ts":(\d+(?:\.\d+)?),"caller":"logging/logging_test\.go:\d+",`
	for i, want := range []string{
		`"msg":"a <b>","v":0,"pod":{"name":"web","namespace":"shop"},"disk.free":3,"disk.wait":"2s",` +
			`"disk.inner.list":["x"]}`,
		`"msg":"no way","err":"broken \"here\"","ref":{"name":"n","namespace":"ns"}}`,
		`"msg":"odd","v":4,"f":"0x`,
		`"msg":"careful","v":0}`,
	} {
		rest := regexp.MustCompile(head).ReplaceAllString(lines[i], "")
		if !strings.HasPrefix(rest, want) {
			t.Errorf("line %q, want %q after the head", lines[i], want)
		}
		got := object(t, lines[i])
		if ts, ok := got["ts"].(float64); !ok || ts < before || ts > before+3_600_000 {
			t.Errorf("ts is %v, not milliseconds since 1970", got["ts"])
		}
	}
	odd := object(t, lines[2])
	if odd["at"] != 1500.0 || !strings.HasPrefix(odd["nil"].(string), "PANIC=") {
		t.Errorf("odd values: %v", odd)
	}
}

// failing panics when it is logged.
type failing struct{ text string }

func (f *failing) Error() string { return f.text }

func TestTextLinesAsKlogs(t *testing.T) {
	m := logOf(FormatText, nil)
	log := m.Logger()
	log.With("pod", "shop/web").Info("step done", "step", "sandbox")
	log.Warn("careful")
	log.WithGroup("g").Error("no way", "err", errors.New("broken"), slog.Group("h", "n", 1))
	log.Info("odd", "wait", time.Minute, "list", []string{"x"}, "nil", (*failing)(nil))
	want := `^I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ logging_test\.go:\d+\] "step done" pod="shop/web" step="sandbox"
W\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ logging_test\.go:\d+\] "careful"
E\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ logging_test\.go:\d+\] "no way" g\.err="broken" g\.h\.n=1
I.* logging_test\.go:\d+\] "odd" wait="1m0s" list=\["x"\] nil="<nil>"
$`
	if !regexp.MustCompile(want).MatchString(m.errors.String()) {
		t.Errorf("%s\nwant %s", m.errors.String(), want)
	}
}

func TestOwnFormat(t *testing.T) {
	m := logOf("", nil)
	m.Logger().Info("hello", "n", 1)
	m.Logger().Debug("not shown")
	if got := m.errors.String(); !strings.HasSuffix(got, "level=INFO msg=hello n=1\n") {
		t.Errorf("%q", got)
	}
}

// TestJournal checks that only berth's own format goes to the journal, whose entries have fields.
func TestJournal(t *testing.T) {
	for format, want := range map[string]bool{"": true, FormatText: false, FormatJSON: false} {
		asked := false
		New(Options{Format: format, Err: &stream{}, Journal: func(h slog.Handler) slog.Handler {
			asked = true
			return h
		}})
		if asked != want {
			t.Errorf("%q: the journal gets the records: %t", format, asked)
		}
	}
}

func TestVerbosity(t *testing.T) {
	for _, format := range []string{"", FormatText, FormatJSON} {
		m := logOf(format, nil)
		shown := func(log *slog.Logger, v int) bool {
			m.errors.Reset()
			log.Log(context.Background(), slog.Level(-v), "x")
			return m.errors.String() != ""
		}
		if !shown(m.Logger(), 0) || shown(m.Logger(), 1) || klog.V(1).Enabled() {
			t.Errorf("%q: not only V(0) is shown at first", format)
		}
		m.SetVerbosity(4)
		if !shown(m.Logger(), 4) || shown(m.Logger(), 5) || !klog.V(4).Enabled() || klog.V(5).Enabled() {
			t.Errorf("%q: not just V(4) is shown after -v 4", format)
		}
		m.SetVerbosity(10)
		if !shown(m.Logger(), 10) || !shown(m.Libraries(), 7) {
			t.Errorf("%q: too little is shown after -v 10", format)
		}
		if shown(m.Libraries(), 8) || klog.V(8).Enabled() {
			t.Errorf("%q: the client library logs bodies", format)
		}
		m.SetVerbosity(0)
	}
}

func TestModules(t *testing.T) {
	for _, format := range []string{"", FormatText, FormatJSON} {
		for pattern, want := range map[string]bool{
			"logging_test": true, "logging*": true, "logging": false, "logging_test.go": false, "[": false,
		} {
			m := logOf(format, func(c *logsapi.LoggingConfiguration) {
				c.VModule = []logsapi.VModuleItem{
					{FilePattern: "*", Verbosity: 0},
					{FilePattern: pattern, Verbosity: 5},
					{FilePattern: "logging_*", Verbosity: 1},
				}
			})
			log := m.Logger().With("pod", "a/b")
			log.Log(context.Background(), -5, "five")
			if got := strings.Contains(m.errors.String(), "five"); got != want {
				t.Errorf("%q, %s=5: V(5) shown: %t", format, pattern, got)
			}
			log.Log(context.Background(), -6, "six")
			m.SetModules(nil)
			log.Log(context.Background(), -1, "one")
			if got := m.errors.String(); strings.Contains(got, "six") || strings.Contains(got, "one") {
				t.Errorf("%q, %s=5: too much is shown: %s", format, pattern, got)
			}
		}
	}
}

// split2 asks for two streams with a buffer.
func split2(c *logsapi.LoggingConfiguration) {
	routing := logsapi.OutputRoutingOptions{
		SplitStream:    true,
		InfoBufferSize: resource.QuantityValue{Quantity: resource.MustParse("4Ki")},
	}
	c.Options.Text.OutputRoutingOptions, c.Options.JSON.OutputRoutingOptions = routing, routing
	c.FlushFrequency = logsapi.TimeOrMetaDuration{Duration: metav1.Duration{Duration: 3 * time.Second}}
}

func TestSplitStreams(t *testing.T) {
	for format, warning := range map[string]string{FormatText: "errors", FormatJSON: "info"} {
		synctest.Test(t, func(t *testing.T) {
			m := logOf(format, split2)
			ctx, end := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); m.Run(ctx) }()
			log := m.Logger()
			log.Info("fine")
			log.Warn("careful")
			log.Error("broken")
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if m.info.String() != "" || !strings.Contains(m.errors.String(), "broken") ||
				strings.Contains(m.errors.String(), "fine") {
				t.Errorf("%s: info %q, errors %q", format, m.info.String(), m.errors.String())
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if !strings.Contains(m.info.String(), "fine") {
				t.Errorf("%s: flushFrequency has no effect", format)
			}
			if strings.Contains(m.info.String(), "careful") != (warning == "info") {
				t.Errorf("%s: the warning went elsewhere: %s", format, m.info.String())
			}
			log.Info("last")
			log.Info(strings.Repeat("long", 2000))
			if !strings.Contains(m.info.String(), "last") {
				t.Errorf("%s: a long line did not write what was kept", format)
			}
			log.Info("end")
			end()
			<-done
			if !strings.Contains(m.info.String(), "end") {
				t.Errorf("%s: the end wrote nothing", format)
			}
		})
	}
}

func TestOneStreamWithoutStdout(t *testing.T) {
	c := logsapi.NewLoggingConfiguration()
	split2(c)
	var all bytes.Buffer
	log := New(Options{Config: *c, Format: FormatText, Err: &all})
	log.Logger().Info("fine")
	log.Run(t.Context()) // returns at once: there is no buffer
	if !strings.Contains(all.String(), "fine") {
		t.Error("the record is lost")
	}
}

// TestAgainstKlog checks that libraries which log through klog have their own place in the source.
func TestAgainstKlog(t *testing.T) {
	m := logOf(FormatText, func(c *logsapi.LoggingConfiguration) { c.Verbosity = 2 })
	klog.SetSlogLogger(m.Libraries())
	t.Cleanup(klog.ClearLogger)
	klog.V(2).InfoS("two", "pod", klog.KRef("ns", "n"))
	klog.V(3).InfoS("three")
	want := `^I.* logging_test\.go:\d+\] "two" pod="ns/n"\n$`
	if !regexp.MustCompile(want).MatchString(m.errors.String()) {
		t.Errorf("%q, want %s", m.errors.String(), want)
	}
}
