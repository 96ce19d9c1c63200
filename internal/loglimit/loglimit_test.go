package loglimit

import (
	"errors"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	var l Limiter
	now := time.Now()
	at := func(d time.Duration, text string, want bool) {
		t.Helper()
		if got := l.Allow(errors.New(text), now.Add(d)); got != want {
			t.Errorf("%s after %s: %t", text, d, got)
		}
	}
	if l.Recovered() {
		t.Error("nothing has failed")
	}
	at(0, "a", true)
	at(time.Second, "a", false)
	at(time.Second, "b", false)
	at(11*time.Second, "b", true)
	at(12*time.Second, "a", false)
	at(4*time.Minute, "b", false)
	at(6*time.Minute, "b", true)
	if !l.Recovered() || l.Recovered() {
		t.Error("it recovered once")
	}
	at(6*time.Minute+time.Second, "b", false)
	at(7*time.Minute, "b", true)
}
