package status

import (
	"bytes"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
)

// Limits of termination messages, the kubelet's.
const (
	// MaxTerminationMessage is how many bytes of one container's termination message file are kept.
	MaxTerminationMessage = 4096
	// MaxPodTerminationMessages is how many bytes the messages of all containers of a pod may have, shared evenly.
	MaxPodTerminationMessages = 12 * 1024
	// MaxTerminationLog is how many bytes of a failed container's log stand in for its message.
	MaxTerminationLog = 2048
	// MaxTerminationLogLines is how many lines of it.
	MaxTerminationLogLines = 80
)

// reasonCannotRun is the runtime's reason for a container whose process could not be started, so that there is no log of it.
const reasonCannotRun = "ContainerCannotRun"

// FallbackToLogs reports whether a container's log stands in for its termination message: the policy asks for it, the container failed, and
// its message file is empty. The caller reads the log's end only then.
func FallbackToLogs(policy v1.TerminationMessagePolicy, exitCode int32, reason string, file []byte) bool {
	return policy == v1.TerminationMessageFallbackToLogsOnError && exitCode != 0 && reason != reasonCannotRun && len(file) == 0
}

// TerminationMessage returns a container's termination message within the limits: the last MaxTerminationMessage bytes of its message file, or, where
// that is empty, the last MaxTerminationLogLines lines and MaxTerminationLog bytes of log (the container's output without the log
// format's prefixes; nil unless FallbackToLogs). Both arguments may be longer, or only their ends. The result is valid UTF-8.
func TerminationMessage(file, log []byte) string {
	if len(file) > 0 {
		return text(tail(file, MaxTerminationMessage))
	}
	return text(tail(lastLines(log, MaxTerminationLogLines), MaxTerminationLog))
}

// lastLines returns the last n lines; an unfinished last line counts.
func lastLines(b []byte, n int) []byte {
	i := len(b)
	if i > 0 && b[i-1] == '\n' {
		i--
	}
	for ; n > 0; n-- {
		i = bytes.LastIndexByte(b[:i], '\n')
		if i < 0 {
			return b
		}
	}
	return b[i+1:]
}

// tail returns the last n bytes, without a character that this cuts apart.
func tail(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	b = b[len(b)-n:]
	for i := 0; i < utf8.UTFMax && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// head returns the first n bytes, without a character that this cuts apart.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := n; i > 0 && i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n]
}

// text makes bytes fit for the API, which takes valid UTF-8 only.
func text(b []byte) string {
	return strings.ToValidUTF8(string(b), string(utf8.RuneError))
}

// messageLimit is each container's share of the pod's limit.
func messageLimit(containers int) int {
	return MaxPodTerminationMessages / max(1, containers)
}
