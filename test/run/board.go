package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/test/env"
)

// row is one sample pod as it was last seen.
type row struct {
	name, ready, status, ip string
	restarts                int32
	// took is the time from the agent's start until the pod was ready or had succeeded, 0 before
	// that.
	took time.Duration
}

// board shows the sample pods. On a terminal it is a table that is drawn again and again; elsewhere
// it is a line for each change.
type board struct {
	out      *os.File
	terminal bool
	start    time.Time
	rows     []row
	drawn    bool
}

func newBoard(out *os.File, samples []string) *board {
	b := &board{out: out, terminal: term.IsTerminal(int(out.Fd())), start: time.Now()}
	for _, name := range samples {
		b.rows = append(b.rows, row{name: name, status: "-"})
	}
	return b
}

// readSamples returns the names of the pods in a folder of manifests.
func readSamples(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list the samples: %w", err)
	}
	var names []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("read a sample: %w", err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			var pod corev1.Pod
			if err := yaml.Unmarshal([]byte(doc), &pod); err != nil {
				return nil, fmt.Errorf("read sample %s: %w", f, err)
			}
			if pod.Kind == "Pod" {
				names = append(names, pod.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no pod in %s", dir)
	}
	return names, nil
}

// ready reports whether every sample pod has been ready.
func (b *board) ready() bool {
	return !slices.ContainsFunc(b.rows, func(r row) bool { return r.took == 0 })
}

// update shows what changed in the agent's pods.
func (b *board) update(pods []corev1.Pod) {
	changed := false
	for i := range b.rows {
		old := b.rows[i]
		b.rows[i] = old.next(env.Find(pods, old.name), time.Since(b.start))
		if b.rows[i] == old {
			continue
		}
		changed = true
		if !b.terminal {
			fmt.Fprintf(b.out, "%7.2fs  %s\n", time.Since(b.start).Seconds(), b.rows[i].line())
		}
	}
	if b.terminal && changed {
		b.draw()
	}
}

// next returns the row for the pod as the agent reports it now. p is nil if the agent does not know
// the pod.
func (r row) next(p *corev1.Pod, elapsed time.Duration) row {
	if p == nil {
		return row{name: r.name, status: "-", took: r.took}
	}
	n := row{name: r.name, status: podStatus(p), ip: p.Status.PodIP, took: r.took}
	good := 0
	for _, c := range p.Status.ContainerStatuses {
		n.restarts += c.RestartCount
		if c.Ready {
			good++
		}
	}
	n.ready = fmt.Sprintf("%d/%d", good, len(p.Spec.Containers))
	if n.took == 0 && env.Ready(p) {
		n.took = elapsed
	}
	return n
}

// podStatus returns one word about a pod, as in kubectl's list.
func podStatus(p *corev1.Pod) string {
	switch {
	case p.DeletionTimestamp != nil:
		return "Terminating"
	case p.Status.Reason != "":
		return p.Status.Reason
	}
	for i, c := range p.Status.InitContainerStatuses {
		if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
			return fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			return c.State.Waiting.Reason
		case c.State.Terminated != nil && c.State.Terminated.Reason != "":
			return c.State.Terminated.Reason
		}
	}
	if p.Status.Phase == "" {
		return "Pending"
	}
	return string(p.Status.Phase)
}

func (r row) line() string {
	took := ""
	if r.took > 0 {
		took = strconv.FormatFloat(r.took.Seconds(), 'f', 2, 64) + "s"
	}
	return strings.TrimRight(fmt.Sprintf("%-12s %-6s %-20s %8d  %-15s %s", r.name, r.ready, r.status, r.restarts, r.ip,
		took), " ")
}

// draw writes the table over the previous one.
func (b *board) draw() {
	if b.drawn {
		fmt.Fprintf(b.out, "\x1b[%dA", len(b.rows)+1)
	}
	b.drawn = true
	fmt.Fprintf(b.out, "\x1b[2K%-12s %-6s %-20s %8s  %-15s %s\n", "NAME", "READY", "STATUS", "RESTARTS", "IP",
		"READY AFTER")
	for _, r := range b.rows {
		fmt.Fprintf(b.out, "\x1b[2K%s\n", r.line())
	}
}

// leave keeps the table as it is. The next change draws another table below what was written since.
func (b *board) leave() { b.drawn = false }

// greet reports that all pods are ready, sends a request to the pods that serve HTTP, and prints
// what to try next. It is an error if an HTTP pod does not answer.
func greet(ctx context.Context, agent *env.Agent, pods []corev1.Pod, opts options) error {
	fmt.Println("every pod is ready")
	for i := range pods {
		p := &pods[i]
		for _, c := range p.Spec.Containers {
			for _, port := range c.Ports {
				if port.Name != "http" {
					continue
				}
				url := "http://" + net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(port.ContainerPort))) + "/"
				answer, err := fetch(ctx, url)
				if err != nil {
					return err
				}
				fmt.Printf("%s answers: %s\n", url, strings.TrimSpace(answer))
			}
		}
	}
	if !opts.once {
		fmt.Printf("edit %s and see what happens; ask the agent: bin/berth ps --socket %s\n"+
			"Ctrl-C ends it and removes everything.\n", samplesDir, agent.Socket)
	}
	return nil
}

func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", url, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("ask %s: answer %s: %w", url, resp.Status, err)
	}
	return string(body), nil
}
