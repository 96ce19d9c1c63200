package status

import (
	"bytes"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
)

// Limits of termination messages (the kubelet's).
const (
	// MaxTerminationMessage is how many bytes of one container's termination message file are kept.
	MaxTerminationMessage = 4096
	// MaxPodTerminationMessages is how many bytes the messages of all containers of a pod may have.
	// Each container has an equal share.
	MaxPodTerminationMessages = 12 * 1024
	// MaxTerminationLog is how many bytes of a failed container's log may replace its message.
	MaxTerminationLog = 2048
	// MaxTerminationLogLines is how many lines of that log.
	MaxTerminationLogLines = 80
)

// reasonCannotRun is the runtime's reason for a container whose process could not start. Such a
// container has no log.
const reasonCannotRun = "ContainerCannotRun"

// FallbackToLogs reports whether a container's log replaces its termination message: the policy
// asks for it, the container failed, and its message file is empty. Only then the caller reads the
// end of the log.
func FallbackToLogs(policy v1.TerminationMessagePolicy, exitCode int32, reason string, file []byte) bool {
	return policy == v1.TerminationMessageFallbackToLogsOnError && exitCode != 0 && reason != reasonCannotRun &&
		len(file) == 0
}

// TerminationMessage returns a container's termination message within the limits: the last
// MaxTerminationMessage bytes of its message file. If the file is empty, the message is the last
// MaxTerminationLogLines lines and MaxTerminationLog bytes of log.
//
// log is the container's output without the prefixes of the log format; it is nil unless
// FallbackToLogs is true. Both arguments may be longer than the limits, or only the ends of the
// files. The result is valid UTF-8.
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

// tail returns the last n bytes, without a character that would be cut in two.
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

// head returns the first n bytes, without a character that would be cut in two.
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

// text makes bytes valid UTF-8, as the API requires.
func text(b []byte) string {
	return strings.ToValidUTF8(string(b), string(utf8.RuneError))
}

// messageLimit is each container's share of the pod's limit, in bytes.
func messageLimit(containers int) int {
	return MaxPodTerminationMessages / max(1, containers)
}
