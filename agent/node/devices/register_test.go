package devices

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// While the socket cannot be made, the manager says so, and tries again.
func TestServed(t *testing.T) {
	dir := shortDir(t)
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := start(t, dir)
	env.Eventually(t, "the failure", func() error {
		if err := b.Served(); err == nil || !strings.Contains(err.Error(), "device plugins cannot register") {
			return errors.New("it is said to be served")
		}
		return nil
	})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the socket", b.Served)
	b.listens()
}
