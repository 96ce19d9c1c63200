package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/desired/drain"
	"github.com/berthd/berth/agent/node/doctor"
	"github.com/berthd/berth/agent/node/hostports"
	"github.com/berthd/berth/agent/node/runtimes"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/plural"
	"github.com/berthd/berth/internal/pods"
)

func newDoctor() *cobra.Command {
	var out output
	var flags agentFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine: kernel, runtime, network, directories, leftovers",
		Long: `Check whether this machine is fit for pods: kernel, cgroups, container runtime and its known
vulnerabilities, CNI, directories, disk space, clock, the systemd units, programs on the host ports of pods, and what
earlier pods left. Each finding says what to do. The check changes nothing and needs no agent.

The config is read as "berth agent" reads it, and the check looks at its endpoint, directories and socket. Use
--config if the agent has a config file of its own.

The exit code is 0 if there is nothing to do, 1 with warnings, and 2 with errors, with a config that stops the
agent, or with wrong flags. Hints do not count.`,
		Example: `  berth doctor
  berth doctor -o wide              # also the checks that found nothing
  berth doctor --config /etc/berth/config.yaml
  berth doctor -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, warnings, err := flags.load()
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "Error:", err)
				return &exitError{code: doctor.ExitError}
			}
			report, err := examine(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if out.structured() {
				err = out.write(cmd.OutOrStdout(), report)
			} else {
				err = showReport(cmd.OutOrStdout(), report, warnings, out == "wide")
			}
			if code := report.ExitCode(); err == nil && code != 0 {
				return &exitError{code: code}
			}
			return err
		},
	}
	flags.addTo(cmd)
	out.flag(cmd, "wide", "json", "yaml")
	return cmd
}

// examine runs the checks on this machine.
func examine(ctx context.Context, cfg *configs.Config) (doctor.Report, error) {
	seen, err := runtimes.Look(ctx, cfg)
	if err != nil {
		return doctor.Report{}, err
	}
	defer seen.Close()
	return doctor.Run(ctx, &doctor.Host{
		Config:    cfg,
		Runtime:   seen,
		Native:    seen.Native,
		Endpoint:  seen.Endpoint,
		Forgotten: seen.Forgotten,
		Version:   version,
		Log:       slog.New(slog.DiscardHandler),
		Command: func(ctx context.Context, name string, args ...string) (string, error) {
			text, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
			return string(text), err
		},
		Space:        space,
		Synchronized: synchronized,
		PodCgroups:   func(ctx context.Context) ([]types.UID, error) { return podCgroups(ctx, cfg) },
		Drained:      drain.NewGate(cfg.RootDir).Held,
		HostPortsTaken: func(ctx context.Context) ([]string, error) {
			all, err := podsOf(ctx, cfg)
			return portsTaken(all), err
		},
		Foregrounds: func() ([]doctor.Foreground, error) { return findRuns(runRoot) },
		Agent: func(ctx context.Context) (doctor.Agent, error) {
			c := client.New(cfg.Berth.Socket)
			defer c.Close()
			v, err := c.Version(ctx)
			if err != nil {
				return doctor.Agent{}, err
			}
			out := doctor.Agent{Version: v.Version, RootDir: v.RootDir, Same: sameDir(v.RootDir, cfg.RootDir)}
			if st, err := c.Status(ctx); err == nil && st.Config != nil {
				out.ConfigFault, out.ConfigRemedy = st.Config.Problem(), st.Config.Remedy()
			}
			return out, nil
		},
	}), nil
}

// portsTaken says which programs of this machine listen on host ports of pods that run, or are to
// run, and of which.
func portsTaken(all []*v1.Pod) (out []string) {
	for _, pod := range all {
		if pods.Terminal(pod.Status.Phase) || pods.Held(pod) {
			continue
		}
		for _, taken := range hostports.Taken(pod) {
			out = append(out, fmt.Sprintf("pod %s: %s", pods.FullName(pod), taken))
		}
	}
	return out
}

// podsOf returns the pods of the agent of a config; if it does not answer, those of its manifests.
func podsOf(ctx context.Context, cfg *configs.Config) ([]*v1.Pod, error) {
	var out []*v1.Pod
	c := client.New(cfg.Berth.Socket)
	defer c.Close()
	if all, err := c.Pods(ctx); err == nil {
		for i := range all {
			out = append(out, &all[i])
		}
		return out, nil
	}
	dir := cfg.Kubelet.StaticPodPath
	if _, err := os.Stat(dir); dir == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	name, err := configs.NodeName(cfg)
	if err != nil {
		return nil, err
	}
	files, err := source.List(dir)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if file.Err != nil {
			continue // "berth manifests" says why
		}
		data, err := source.ReadManifest(file.Path, nil)
		if err != nil {
			return nil, err
		}
		for _, item := range (source.Decoder{NodeName: name}).Decode(file.Path, data) {
			if item.Pod != nil {
				out = append(out, item.Pod)
			}
		}
	}
	return out, nil
}

func space(path string) (doctor.Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return doctor.Space{}, err
	}
	size := uint64(s.Bsize)
	return doctor.Space{Bytes: s.Blocks * size, FreeBytes: s.Bavail * size, Inodes: s.Files, FreeInodes: s.Ffree}, nil
}

// clockUnset is the result of adjtimex(2) for a clock that is not synchronized (TIME_ERROR).
const clockUnset = 5

func synchronized() (bool, error) {
	state, err := unix.Adjtimex(&unix.Timex{})
	return state != clockUnset, err
}

// podCgroups returns the pods that have a cgroup of either driver.
func podCgroups(ctx context.Context, cfg *configs.Config) ([]types.UID, error) {
	var all []types.UID
	var errs []error
	for _, driver := range []cgroups.Driver{cgroups.Cgroupfs, cgroups.Systemd} {
		m, err := cgroups.New(cgroups.Config{Driver: driver, Root: cfg.Kubelet.CgroupRoot, CgroupsPerQOS: true},
			cgroups.Deps{})
		if err != nil {
			continue // a host without systemd has no cgroups of that driver
		}
		uids, err := m.List(ctx)
		all, errs = append(all, uids...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// showReport writes the problems, and with all also the checks that passed.
func showReport(w io.Writer, r doctor.Report, warnings []configs.Warning, all bool) error {
	rows := [][]string{}
	count := map[doctor.Level]int{}
	for _, f := range r.Findings {
		count[f.Level]++
		if f.Level == doctor.OK && !all {
			continue
		}
		rows = append(rows, []string{string(f.Level), f.Check, show.Clean(f.Message)})
		if f.Fix != "" {
			rows = append(rows, []string{"", "", "-> " + f.Fix})
		}
	}
	for _, warn := range warnings {
		rows = append(rows, []string{string(doctor.Hint), "config", show.Clean(warn.String())})
	}
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "%-8s %-12s %s\n", row[0], row[1], row[2]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s, %s, %s, %d ok\n", plural.Of(count[doctor.Error], "error"),
		plural.Of(count[doctor.Warning], "warning"), plural.Of(count[doctor.Hint]+len(warnings), "hint"), count[doctor.OK])
	return err
}
