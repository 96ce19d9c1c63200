package main

import (
	"bufio"
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
