package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// cpu returns how long the living threads of processes have run. It reads the kernel's schedstat,
// in nanoseconds. The ticks of /proc/PID/stat would be rounded to nothing for fifty shims that do
// almost nothing.
func cpu(pids ...int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, f := range files {
			var ran int64
			if text, err := os.ReadFile(f); err == nil {
				if _, err := fmt.Sscan(string(text), &ran); err == nil {
					sum += time.Duration(ran)
				}
			}
		}
	}
	return sum
}

// cost is how long the machine's cores worked, and how long for the agent and for containerd. The
// rest is that of shims, runc and network plugins, of the kernel for them, and of whatever else
// runs.
type cost struct{ machine, agent, containerd time.Duration }

func (b *bed) cost() cost {
	c := cost{containerd: ticks(b.env.ContainerdPID()), machine: busy()}
	if pid := b.subject.pid(); pid != 0 {
		c.agent = ticks(pid)
	}
	return c
}

func (c cost) since(before cost) cost {
	return cost{c.machine - before.machine, c.agent - before.agent, c.containerd - before.containerd}
}

// tick is the unit of the times in /proc (proc(5): USER_HZ).
const tick = 10 * time.Millisecond

// ticks returns how long a process has run with all threads that it ever had: fields 14 and 15 of
// /proc/PID/stat.
func ticks(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from field 3 on
	var user, system int64
	if len(fields) < 13 {
		return 0
	}
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0
	}
	return time.Duration(user+system) * tick
}

// busy returns how long all cores have worked: the first line of /proc/stat without the time that
// nothing ran (proc_stat(5): user, nice, system, idle, iowait, irq, softirq, in hundredths of
// seconds).
func busy() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	var user, nice, system, idle, iowait, irq, softirq int64
	if _, err := fmt.Sscanf(string(text), "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq,
		&softirq); err != nil {
		return 0
	}
	return time.Duration(user+nice+system+irq+softirq) * tick
}

// memory returns a process's resident memory and its anonymous part, in MB of 2^20 bytes.
func memory(pid int) (rss, anon float64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read the agent's memory: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		var kb float64
		switch _, _ = fmt.Sscan(value, &kb); name {
		case "VmRSS":
			rss = kb / 1024
		case "RssAnon":
			anon = kb / 1024
		}
	}
	return rss, anon, nil
}

// load returns the machine's load average over one, five and fifteen minutes.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
