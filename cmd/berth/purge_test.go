package main

import (
	"strings"
	"testing"
)

func TestPurgeAsks(t *testing.T) {
	for answer, want := range map[string]bool{
		"y\n": true, "YES\n": true, " yes ": true, "": false, "\n": false, "n\n": false, "yesterday\n": false,
	} {
		var asked strings.Builder
		if got := isSure(strings.NewReader(answer), &asked); got != want || !strings.Contains(asked.String(), "[y/N]") {
			t.Errorf("answer %q: %v after %q, want %v", answer, got, asked.String(), want)
		}
	}
}
