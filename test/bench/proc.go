package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpu returns how long processes have run, with all threads that they ever had: the time of their
// CPU clocks, in nanoseconds (clock_getcpuclockid(3)). The ticks of /proc/PID/stat would be rounded
// to nothing for fifty shims that do almost nothing. Process id 0 stands for no process.
func cpu(pids ...int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		var ran unix.Timespec
		if pid > 0 && unix.ClockGettime(cpuClock(pid), &ran) == nil {
			sum += time.Duration(ran.Nano())
		}
	}
	return sum
}

// cpuClock returns the clock of a process that counts what the scheduler has given to it
// (include/linux/posix-timers_types.h: CPUCLOCK_SCHED is 2).
func cpuClock(pid int) int32 { return int32(^pid)<<3 | 2 }

// cost is how long the machine's cores worked, and how long for the agent and for containerd. The
// rest is that of shims, runc and network plugins, of the kernel for them, and of whatever else
// runs.
type cost struct{ machine, agent, containerd time.Duration }

func (b *bed) cost() cost {
	return cost{agent: cpu(b.subject.pid()), containerd: cpu(b.env.ContainerdPID()), machine: busy()}
}

func (c cost) since(before cost) cost {
	return cost{c.machine - before.machine, c.agent - before.agent, c.containerd - before.containerd}
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
	return time.Duration(user+nice+system+irq+softirq) * (time.Second / 100)
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
