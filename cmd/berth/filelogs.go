package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/logs"
)

// fileLogs prints logs from their files, for a node whose agent does not run. The files do not say
// which pods are wanted, nor in which order their containers start.
type fileLogs struct {
	// root is the directory of the pods' logs.
	root        string
	out, errOut io.Writer
}

// logsWithoutAgent prints the logs of one pod from their files. gone is the error of the agent that
// does not answer; it is returned if the files do not have what was asked for.
func (o *logsOptions) logsWithoutAgent(
	ctx context.Context, gone *client.NotRunningError, args []string, opts client.LogOptions, out, errOut io.Writer,
) error {
	cfg, _, err := o.conn.load()
	if err != nil || len(args) == 0 {
		return errors.Join(gone, err)
	}
	f := fileLogs{root: cfg.Kubelet.PodLogsDir, out: out, errOut: errOut}
	pod, container, err := f.target(args[0], o.pods.namespace, o.container)
	if err != nil && !o.conn.given("config", "config-dir") {
		err = fmt.Errorf("%w (--config FILE names the config of an agent with another podLogsDir; that of a run is "+
			"config.yaml in its --root-dir)", err)
	}
	if err != nil {
		return fmt.Errorf("%w; %w", gone, err)
	}
	fmt.Fprintf(errOut, "The berth agent does not run (no answer at %s): this is from the files in %s.\n", gone.Socket,
		cri.PodLogDir(f.root, pod))
	if opts.Follow {
		fmt.Fprintln(errOut, "Without the agent, -f ends at the end of the file.")
	}
	containers, err := f.containers(pod, container, o.allContainers)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range containers {
		errs = append(errs, f.print(ctx, pod, c, o.prefix, opts))
	}
	return errors.Join(errs...)
}

// target finds the pod and the container in an argument, as [findContainer] does.
func (f *fileLogs) target(arg, namespace, given string) (pod cri.PodID, container string, err error) {
	pod, err = f.pod(arg, namespace)
	at := strings.LastIndex(arg, "/")
	if err == nil || at < 0 {
		return pod, given, err
	}
	of, other := f.pod(arg[:at], namespace)
	if other != nil {
		return pod, "", err
	}
	container, err = oneContainer(arg, arg[at+1:], given)
	return of, container, err
}

// pod finds the pod in an argument: NAME, NAMESPACE/NAME, or a static pod's name in its manifest.
// Of several pods with one full name, it is the one whose directory changed last.
func (f *fileLogs) pod(arg, namespace string) (cri.PodID, error) {
	namespace, name := splitPod(arg, namespace)
	entries, err := os.ReadDir(f.root)
	if err != nil {
		return cri.PodID{}, fmt.Errorf("looking for its log: %w", err)
	}
	host, _ := nodeName("")
	found := map[string]cri.PodID{}
	changed := map[string]time.Time{}
	for _, e := range entries {
		pod, ok := cri.ParsePodLogDir(e.Name())
		if !ok || namespace != "" && pod.Namespace != namespace || pod.Name != name && pod.Name != name+"-"+host {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue
		}
		if full := pod.Namespace + "/" + pod.Name; info.ModTime().After(changed[full]) {
			found[full], changed[full] = pod, info.ModTime()
		}
	}
	var names []string
	for full := range found {
		names = append(names, full)
	}
	switch len(names) {
	case 0:
		return cri.PodID{}, fmt.Errorf("and %s has no log of a pod %q", f.root, arg)
	case 1:
		return found[names[0]], nil
	}
	slices.Sort(names)
	return cri.PodID{}, fmt.Errorf("and %s is ambiguous: say which: %s", arg, strings.Join(names, ", "))
}

// containers returns the chosen containers of those that have logs.
func (f *fileLogs) containers(pod cri.PodID, wanted string, all bool) ([]string, error) {
	entries, err := os.ReadDir(cri.PodLogDir(f.root, pod))
	if err != nil {
		return nil, fmt.Errorf("looking for the logs of containers: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	switch {
	case wanted != "" && !slices.Contains(names, wanted):
		return nil, fmt.Errorf("container %q of pod %s/%s has no log; there are logs of: %s", wanted, pod.Namespace,
			pod.Name, strings.Join(names, ", "))
	case wanted != "":
		return []string{wanted}, nil
	case len(names) == 0:
		return nil, fmt.Errorf("pod %s/%s has no log", pod.Namespace, pod.Name)
	case len(names) > 1 && !all:
		return nil, wrongly("which container? its manifest is not known without the agent: give -c or "+
			"--all-containers; there are logs of: %s", strings.Join(names, ", "))
	}
	return names, nil
}

// print prints the log of a container's last instance, or of the one before it.
func (f *fileLogs) print(ctx context.Context, pod cri.PodID, container string, prefix bool, o client.LogOptions) error {
	dir := filepath.Join(filepath.Base(cri.PodLogDir(f.root, pod)), container)
	entries, err := os.ReadDir(filepath.Join(f.root, dir))
	if err != nil {
		return fmt.Errorf("looking for the log of container %s: %w", container, err)
	}
	attempts := map[int]bool{}
	last := -1
	for _, e := range entries {
		if n, ok := cri.ParseContainerLog(e.Name()); ok {
			attempts[n], last = true, max(last, n)
		}
	}
	if o.Previous {
		last--
	}
	if !attempts[last] {
		return fmt.Errorf("the log of container %s of pod %s/%s is not there", container, pod.Namespace, pod.Name)
	}
	since := o.Since
	if o.SinceSeconds != nil {
		since = time.Now().Add(-time.Duration(*o.SinceSeconds) * time.Second)
	}
	w := f.out
	if prefix {
		lines := &lineWriter{w: f.out, prefix: "[pod/" + pod.Name + "/" + container + "] "}
		defer lines.flush()
		w = lines
	}
	return logs.Read(ctx, logs.Output{Stdout: w, Stderr: w},
		logs.File{Root: f.root, Path: filepath.Join(filepath.Dir(dir), cri.ContainerLogPath(container, last))},
		logs.Options{Tail: o.Tail, Since: since, LimitBytes: o.LimitBytes, Timestamps: o.Timestamps}, logs.Deps{})
}
