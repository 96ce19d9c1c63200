// Package ownlimits sets the limits of the agent's own process.
//
// Purpose: the agent must outlive a node that is out of memory, and must be able to watch many
// containers. The config says so as a kubelet's does (oomScoreAdj, maxOpenFiles).
//
// Truth owned: none; the kernel owns it. Concurrency: [Apply] is called once.
package ownlimits

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/configs"
)

// Process has the limits of a process. Make the agent's own with [Self].
type Process struct {
	// ScoreFile is the process's oom_score_adj (proc_pid_oom_score_adj(5)).
	ScoreFile string
	// Files returns how many files the process may open, and SetFiles sets that. Both limits of the
	// process are meant, the soft and the hard one (getrlimit(2), RLIMIT_NOFILE).
	Files    func() (unix.Rlimit, error)
	SetFiles func(unix.Rlimit) error
}

// Self returns the agent's own process.
func Self() Process {
	return Process{
		ScoreFile: "/proc/self/oom_score_adj",
		Files: func() (limit unix.Rlimit, err error) {
			err = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
			return limit, err
		},
		SetFiles: func(limit unix.Rlimit) error { return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) },
	}
}

// Apply sets the limits that the config has. A limit that the kernel refuses is no reason not to
// run pods, as on a kubelet. Only if the config itself sets the limit, a warning says so: the
// service manager may have set another one than the default.
func Apply(cfg *configs.Config, p Process, log *slog.Logger) {
	for _, limit := range []struct {
		setting string
		set     func() error
	}{
		{"oomScoreAdj", func() error { return p.setScore(cfg.Kubelet.OOMScoreAdj) }},
		{"maxOpenFiles", func() error { return p.setFiles(cfg.Kubelet.MaxOpenFiles) }},
	} {
		err := limit.set()
		switch {
		case err != nil && cfg.IsSet(limit.setting):
			log.Warn("config: the kernel refuses the agent's own limit: set it in the service's unit (OOMScoreAdjust, "+
				"LimitNOFILE)", "setting", limit.setting, "err", err)
		case err != nil:
			log.Debug("the agent's own limit stays as the service manager set it", "setting", limit.setting, "err", err)
		}
	}
}

// setScore sets oom_score_adj, unless it is right already.
func (p Process) setScore(want *int32) error {
	if want == nil {
		return nil
	}
	text := strconv.Itoa(int(*want))
	have, err := os.ReadFile(p.ScoreFile)
	if err == nil && strings.TrimSpace(string(have)) == text {
		return nil
	}
	if err := os.WriteFile(p.ScoreFile, []byte(text), 0); err != nil {
		return fmt.Errorf("setting oom_score_adj to %s: %w", text, err)
	}
	return nil
}

// setFiles sets how many files the process may open, unless that is right already.
func (p Process) setFiles(want int64) error {
	limit := unix.Rlimit{Cur: uint64(max(want, 0)), Max: uint64(max(want, 0))}
	if have, err := p.Files(); want <= 0 || err == nil && have == limit {
		return nil
	}
	if err := p.SetFiles(limit); err != nil {
		return fmt.Errorf("setting the limit of open files to %d: %w", want, err)
	}
	return nil
}
