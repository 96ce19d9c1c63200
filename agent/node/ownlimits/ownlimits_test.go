package ownlimits

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/configs"
)

// process is a process with limits of its own. The kernel refuses more files than its hard limit.
func process(t *testing.T, score string) (p Process, limit *unix.Rlimit) {
	t.Helper()
	limit = &unix.Rlimit{Cur: 1024, Max: 4096}
	p = Process{
		ScoreFile: filepath.Join(t.TempDir(), "oom_score_adj"),
		Files:     func() (unix.Rlimit, error) { return *limit, nil },
		SetFiles: func(want unix.Rlimit) error {
			if want.Max > limit.Max {
				return unix.EPERM
			}
			*limit = want
			return nil
		},
	}
	if err := os.WriteFile(p.ScoreFile, []byte(score+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return p, limit
}

// load reads a config of these lines.
func load(t *testing.T, lines string) *configs.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + lines
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := configs.Load(configs.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestApply(t *testing.T) {
	for name, c := range map[string]struct {
		lines string
		score string
		files uint64
		warns string
	}{
		"the defaults, of which one is refused": {"", "-999", 4096, ""},
		"both are set":                          {"oomScoreAdj: -500\nmaxOpenFiles: 2000\n", "-500", 2000, ""},
		"one is refused":                        {"maxOpenFiles: 5000\n", "-999", 4096, "maxOpenFiles"},
	} {
		var log bytes.Buffer
		p, limit := process(t, "0")
		Apply(load(t, c.lines), p, slog.New(slog.NewTextHandler(&log, nil)))
		score, err := os.ReadFile(p.ScoreFile)
		if got := strings.TrimSpace(string(score)); err != nil || got != c.score || limit.Max != c.files {
			t.Errorf("%s: oom_score_adj %q, %v; files %d", name, got, err, limit.Max)
		}
		if warned := strings.Contains(log.String(), "level=WARN"); warned != (c.warns != "") ||
			!strings.Contains(log.String(), c.warns) {
			t.Errorf("%s: the log is %q", name, log.String())
		}
	}
}

// What is right already is not written, and a file that is not there is no crash.
func TestApplyWithoutRights(t *testing.T) {
	cfg := &configs.Config{}
	cfg.Kubelet.OOMScoreAdj, cfg.Kubelet.MaxOpenFiles = ptr.To(int32(7)), 2048
	p, limit := process(t, "7")
	*limit = unix.Rlimit{Cur: 2048, Max: 2048}
	if err := os.Chmod(p.ScoreFile, 0o400); err != nil {
		t.Fatal(err)
	}
	p.SetFiles = func(unix.Rlimit) error {
		t.Error("the limit of files was set again")
		return nil
	}
	Apply(cfg, p, slog.New(slog.DiscardHandler))
	p.ScoreFile = "/dev/null/none"
	if err := p.setScore(ptr.To(int32(1))); err == nil || !strings.Contains(err.Error(), "setting oom_score_adj to 1") {
		t.Errorf("%v", err)
	}
}

// The real process has these limits; setting them to what they are changes nothing.
func TestSelf(t *testing.T) {
	p := Self()
	limit, err := p.Files()
	if err != nil || limit.Max == 0 {
		t.Fatalf("%+v, %v", limit, err)
	}
	if err := p.SetFiles(limit); err != nil {
		t.Error(err)
	}
	if _, err := os.ReadFile(p.ScoreFile); err != nil {
		t.Error(err)
	}
}
