package shutdown

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berthd/berth/internal/atomicfile"
	"github.com/berthd/berth/internal/retry"
)

// LogindConf is the drop-in of logind.conf(5) that a kubelet writes. The agent writes the same
// file, so that a node that changes between the two never has two values.
const LogindConf = "/etc/systemd/logind.conf.d/99-kubelet.conf"

const (
	// reloadLooks is how often, and reloadLook is the first time after which, the agent looks
	// whether logind has taken over a changed configuration. The time doubles with each look.
	reloadLooks = 6
	reloadLook  = 100 * time.Millisecond
)

// ensureDelay makes logind wait as long as the pods may take. logind's own default is five seconds
// (InhibitDelayMaxSec, logind.conf(5)). A longer time that logind already has stays.
func (m *Manager) ensureDelay(ctx context.Context, bus Bus) error {
	most, err := bus.DelayMax(ctx)
	if err != nil || most >= m.cfg.Delay {
		return err
	}
	if err := writeDelay(m.cfg.LogindConf, m.cfg.Delay); err != nil {
		return err
	}
	if err := bus.Reload(ctx); err != nil {
		return err
	}
	wait := retry.Backoff{First: reloadLook, Most: time.Minute}
	for look := 1; look <= reloadLooks; look++ {
		if most, err = bus.DelayMax(ctx); err != nil || most >= m.cfg.Delay {
			return err
		}
		if !wait.Wait(ctx, look) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("systemd-logind waits at most %s for the end of pods, although %s says %s: look for another "+
		"InhibitDelayMaxSec in /etc/systemd/logind.conf.d", most, m.cfg.LogindConf, m.cfg.Delay)
}

// writeDelay writes the drop-in of logind.conf that sets the longest delay.
func writeDelay(path string, delay time.Duration) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the directory for %s: %w", path, err)
	}
	text := fmt.Sprintf("# Written by berth: the sum of the shutdown grace periods of its pods.\n[Login]\n"+
		"InhibitDelayMaxSec=%.0f\n", delay.Seconds())
	if err := atomicfile.Write(path, []byte(text), 0o644, atomicfile.OverPowerLoss); err != nil {
		return fmt.Errorf("setting InhibitDelayMaxSec of systemd-logind: %w", err)
	}
	return nil
}
