package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/berthd/berth/cgroups"
)

// who is a container of a pod, or the pod itself if the container is empty. All pods are of one
// namespace.
type who struct{ pod, container string }

func whoOf(labels []*dto.LabelPair) who {
	var w who
	for _, l := range labels {
		switch l.GetName() {
		case "pod":
			w.pod = l.GetValue()
		case "container":
			w.container = l.GetValue()
		}
	}
	return w
}

// usage is the CPU time in seconds, and the working set in bytes.
type usage struct{ cpu, memory float64 }

// compare compares what the agent says about pods and containers with the files of their cgroups,
// which are read before and after the answer. A figure between the two is exact.
func (b *bed) compare(ctx context.Context, a agent, p scrape) error {
	containers, err := b.containers(ctx)
	if err != nil {
		return err
	}
	before, err := kernelUsage(containers)
	if err != nil {
		return err
	}
	text, err := a.get(ctx, p.path)
	if err != nil {
		return err
	}
	after, err := kernelUsage(containers)
	if err != nil {
		return err
	}
	said, err := p.read(text)
	if err != nil {
		return err
	}
	var cpuTime, memory float64
	for w, first := range before {
		cpuTime = max(cpuTime, apart(said[w].cpu, first.cpu, after[w].cpu))
		memory = max(memory, apart(said[w].memory, first.memory, after[w].memory))
	}
	b.out.Values[p.cpuTimeApart], b.out.Values[p.memoryApart] = 100*cpuTime, 100*memory
	b.say("%s: %d pods and containers, beside the cgroups' files: memory %.2f %%, CPU time %.2f %%", p.path,
		len(before), 100*memory, 100*cpuTime)
	return nil
}

// apart returns how far a figure is from what was there before and after, as a part of that.
func apart(v, before, after float64) float64 {
	low, high := min(before, after), max(before, after)
	return max(0, low-v, v-high) / max(high, 1e-9)
}

// kernelUsage reads the files of the cgroups of containers, and of their pods: the cgroups above.
func kernelUsage(containers []container) (map[who]usage, error) {
	out := map[who]usage{}
	for _, c := range containers {
		memory, cpuTime, err := cgroupsOf(c.process)
		if err != nil {
			return nil, err
		}
		for w, up := range map[who]string{{c.pod, mainContainer}: "", {pod: c.pod}: ".."} {
			if out[w], err = usageIn(filepath.Join(memory, up), filepath.Join(cpuTime, up)); err != nil {
				return nil, fmt.Errorf("read the cgroup of %s: %w", c.pod, err)
			}
		}
	}
	return out, nil
}

// cgroupsOf returns the folders in which the kernel counts a process's memory and CPU time.
func cgroupsOf(pid int) (memory, cpuTime string, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", "", fmt.Errorf("find a container's cgroup: %w", err)
	}
	const root = "/sys/fs/cgroup"
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		switch {
		case cgroups.HostVersion() == cgroups.V2:
			memory, cpuTime = filepath.Join(root, fields[2]), filepath.Join(root, fields[2])
		case fields[1] == "memory":
			memory = filepath.Join(root, "memory", fields[2])
		case fields[1] == "cpuacct" || fields[1] == "cpu,cpuacct":
			cpuTime = filepath.Join(root, "cpuacct", fields[2])
		}
	}
	return memory, cpuTime, nil
}

// counter is a number in a file of a cgroup. If the file has a line for each of several numbers,
// name is what the line begins with.
type counter struct{ file, name string }

// counters are the files of a version of cgroups. The file of cpu counts perSecond for a second.
type counters struct {
	memory, inactive, cpu counter
	perSecond             float64
}

var (
	countersV1 = counters{
		counter{file: "memory.usage_in_bytes"},
		counter{"memory.stat", "total_inactive_file"},
		counter{file: "cpuacct.usage"},
		1e9,
	}
	countersV2 = counters{
		counter{file: "memory.current"},
		counter{"memory.stat", "inactive_file"},
		counter{"cpu.stat", "usage_usec"},
		1e6,
	}
)

// usageIn reads the files of a cgroup. The working set is the memory without inactive file pages.
func usageIn(memory, cpuTime string) (usage, error) {
	c := countersV1
	if cgroups.HostVersion() == cgroups.V2 {
		c = countersV2
	}
	used, err := c.memory.read(memory)
	if err != nil {
		return usage{}, err
	}
	inactive, err := c.inactive.read(memory)
	if err != nil {
		return usage{}, err
	}
	ran, err := c.cpu.read(cpuTime)
	return usage{cpu: ran / c.perSecond, memory: max(0, used-inactive)}, err
}

func (c counter) read(dir string) (float64, error) {
	text, err := os.ReadFile(filepath.Join(dir, c.file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		value, found := strings.CutPrefix(line, c.name)
		var n float64
		if _, err := fmt.Sscan(value, &n); found && err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s has no number of %q", c.file, c.name)
}
