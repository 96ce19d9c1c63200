package status

import (
	"strings"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
)

func TestTerminationMessage(t *testing.T) {
	lines := strings.Repeat("line\n", 100)
	tests := []struct {
		name      string
		file, log string
		want      string
	}{
		{"empty", "", "", ""},
		{"file", "hello", "", "hello"},
		{"file before log", "hello", "log", "hello"},
		{
			"long file keeps its end", strings.Repeat("a", 5000) + "end", "",
			strings.Repeat("a", MaxTerminationMessage-3) + "end",
		},
		{"log", "", "a\nb\n", "a\nb\n"},
		{"80 lines", "", lines, strings.Repeat("line\n", 80)},
		{"80 lines, last unfinished", "", lines + "end", strings.Repeat("line\n", 79) + "end"},
		{"2048 bytes", "", strings.Repeat("b", 3000) + "\nend\n", strings.Repeat("b", MaxTerminationLog-5) + "\nend\n"},
		{
			"no character cut apart", "x" + strings.Repeat("é", MaxTerminationMessage/2), "",
			strings.Repeat("é", MaxTerminationMessage/2),
		},
		{
			"a cut character is left out", strings.Repeat("é", MaxTerminationMessage/2) + "x", "",
			strings.Repeat("é", MaxTerminationMessage/2-1) + "x",
		},
		{"binary", "a\xff\xfeb", "", "a\uFFFDb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := TerminationMessage([]byte(tt.file), []byte(tt.log)); got != tt.want {
				t.Errorf("%d bytes %.40q, want %d bytes %.40q", len(got), got, len(tt.want), tt.want)
			}
		})
	}
}

func TestFallbackToLogs(t *testing.T) {
	fallback := v1.TerminationMessageFallbackToLogsOnError
	for _, tt := range []struct {
		policy v1.TerminationMessagePolicy
		code   int32
		reason string
		file   string
		want   bool
	}{
		{fallback, 1, "Error", "", true},
		{fallback, 0, "Completed", "", false},
		{fallback, 1, "Error", "text", false},
		{fallback, 128, "ContainerCannotRun", "", false},
		{v1.TerminationMessageReadFile, 1, "Error", "", false},
	} {
		if got := FallbackToLogs(tt.policy, tt.code, tt.reason, []byte(tt.file)); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// The containers of a pod share 12 KiB.
func TestPodMessageLimit(t *testing.T) {
	pod := newPod(inits("a", "b", "c"), regular("d"))
	message := strings.Repeat("é", 2000)
	got := Derive(Input{
		Pod:                 pod,
		Containers:          facts(exited("d", 0, 1, 1)),
		TerminationMessages: map[string]string{"d-0": message},
		Now:                 at(1),
	})
	text := got.ContainerStatuses[0].State.Terminated.Message
	if len(text) != 12*1024/4 || !utf8.ValidString(text) {
		t.Errorf("%d bytes", len(text))
	}
}
