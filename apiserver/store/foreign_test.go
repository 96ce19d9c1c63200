package store

import (
	"strings"
	"testing"
)

// TestForeign shows what is advised to root, who may change an owner, and to others.
func TestForeign(t *testing.T) {
	for _, c := range []struct {
		user int
		link bool
		want string
	}{
		{0, false, "chown -hR 0 /data/\""}, {0, true, "chown -hR 0 /data\""}, {1000, false, "run this command as that user"},
	} {
		text := foreign("/data", 7, c.user, c.link).Error()
		if !strings.Contains(text, c.want) || !strings.Contains(text, "/data belongs to the user with uid 7") ||
			strings.Contains(text, "chown") != (c.user == 0) {
			t.Errorf("the user %d is told %s", c.user, text)
		}
	}
}
