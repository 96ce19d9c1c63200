package stats

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/cgroups"
)

// nodeReading is the usage of the machine, of all pods, and of the agent.
type nodeReading struct {
	at      time.Time
	boot    time.Time
	cpu     time.Duration
	memory  map[string]uint64 // /proc/meminfo, in bytes
	vm      map[string]uint64 // /proc/vmstat
	network []link
	// maxPID is the kernel's limit of tasks, processes the number of tasks.
	maxPID, processes int64
	pods              cgroups.Usage
	// podsMemoryLimit is the limit of the memory of all pods together, in bytes; 0 for none.
	podsMemoryLimit uint64
	agent           processReading

	nanoCores, podsNanoCores, agentNanoCores *uint64
}

// processReading is the usage of one process.
type processReading struct {
	cpu     time.Duration
	rss     uint64
	started time.Time
}

// clockTick is the unit of times in /proc/PID/stat and /proc/stat (USER_HZ). It is the same on
// every architecture of Linux that Go supports.
const clockTick = 10 * time.Millisecond

func (c *Collector) readNode() nodeReading {
	n := nodeReading{at: time.Now(), memory: map[string]uint64{}, vm: map[string]uint64{}}
	for line := range strings.Lines(c.proc("stat")) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 8 && fields[0] == "cpu":
			// The fields are user, nice, system, idle, iowait, irq, softirq, steal (proc(5)).
			for i, field := range fields[1:9] {
				if ticks, err := strconv.ParseInt(field, 10, 64); err == nil && i != 3 && i != 4 && i != 7 {
					n.cpu += time.Duration(ticks) * clockTick
				}
			}
		case len(fields) == 2 && fields[0] == "btime":
			if s, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				n.boot = time.Unix(s, 0)
			}
		}
	}
	if root, err := c.cgroups().Usage("/"); err == nil && root.CPU > 0 {
		n.cpu = root.CPU // more precise than ticks
	}
	for line := range strings.Lines(c.proc("vmstat")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "pg") {
			n.vm[name], _ = strconv.ParseUint(value, 10, 64)
		}
	}
	n.network = c.hostLinks()
	n.agent = c.readSelf(n.boot)
	c.readLeft(&n)
	return n
}

// readLeft reads the part by which the node protects itself: the machine's memory and tasks, and
// the memory of all pods.
func (c *Collector) readLeft(n *nodeReading) {
	for line := range strings.Lines(c.proc("meminfo")) {
		if name, rest, ok := strings.Cut(line, ":"); ok {
			value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			if kib, err := strconv.ParseUint(value, 10, 64); err == nil {
				n.memory[name] = kib << 10
			}
		}
	}
	n.maxPID = c.maxPID()
	if fields := strings.Fields(c.proc("loadavg")); len(fields) > 3 { // running/all tasks
		_, all, _ := strings.Cut(fields[3], "/")
		n.processes, _ = strconv.ParseInt(all, 10, 64)
	}
	n.pods, _ = c.cgroups().Usage(c.cgroups().Layout().PodsPath())
	if d, err := c.cgroups().Details(c.cgroups().Layout().PodsPath()); err == nil {
		n.podsMemoryLimit = d.MemoryLimit
	}
}

// maxPID returns how many tasks there may be: the kernel's largest process id or its limit of
// threads, whichever is less; 0 if neither can be read.
func (c *Collector) maxPID() int64 {
	var least int64
	for _, name := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		n, err := strconv.ParseInt(strings.TrimSpace(c.proc(name)), 10, 64)
		if err == nil && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// usedMemory returns the memory in use, and the part of it that cannot be reclaimed at once.
func (n *nodeReading) usedMemory() (used, workingSet uint64) {
	used = n.memory["MemTotal"] - min(n.memory["MemTotal"], n.memory["MemFree"])
	return used, used - min(used, n.memory["Inactive(file)"])
}

// readSelf reads the agent's own usage.
func (c *Collector) readSelf(boot time.Time) processReading {
	var p processReading
	stat := c.proc("self/stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return p
	}
	// The fields begin behind the name, with the third field of proc(5).
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(fields[i-3], 10, 64)
		return n
	}
	p.cpu = time.Duration(number(14)+number(15)) * clockTick
	p.started = boot.Add(time.Duration(number(22)) * clockTick)
	p.rss = uint64(number(24)) * uint64(os.Getpagesize())
	return p
}

// proc returns the content of a file of the proc file system; empty if it cannot be read.
func (c *Collector) proc(name string) string {
	data, err := os.ReadFile(filepath.Join(c.cfg.Proc, name))
	if err != nil {
		return ""
	}
	return string(data)
}
