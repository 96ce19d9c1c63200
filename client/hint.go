package client

import (
	"os"
	"path/filepath"
	"slices"
)

// unitDirs returns the directories of systemd's units (systemd.unit(5)).
func unitDirs() []string {
	return []string{
		"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
		"/lib/systemd/system",
	}
}

// unitInstalled reports whether one of the directories has berth's unit.
func unitInstalled(dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "berth.service"))
		return err == nil
	})
}

// startHint returns how to start the agent on this machine, and logHint where its log is.
func startHint(dirs []string) string {
	if unitInstalled(dirs) {
		return "`systemctl start berth`"
	}
	return "`berth agent`"
}

func logHint(dirs []string) string {
	if unitInstalled(dirs) {
		return "see its log with `journalctl -u berth`"
	}
	return "see its log"
}
