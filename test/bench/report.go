package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// report is one run of the benchmark.
type report struct {
	Size    sizes
	Began   time.Time
	Took    time.Duration
	Load    string
	Columns []*column
}

func (r *report) column(name string) *column {
	for _, c := range r.Columns {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// markdown returns the table, and the machine on which it was measured.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprint(&b, "| What |")
	for _, c := range r.Columns {
		fmt.Fprintf(&b, " %s |", c.Name)
	}
	fmt.Fprint(&b, " aims |\n|---|", strings.Repeat("---|", len(r.Columns)+1), "\n")
	for _, row := range rows(r.Size) {
		fmt.Fprintf(&b, "| %s |", row.title)
		for _, c := range r.Columns {
			fmt.Fprintf(&b, " %s |", cell(c, row))
		}
		fmt.Fprintf(&b, " %s |\n", r.judge(row))
	}
	fmt.Fprintf(&b, "\n%s. %s.\nThe load average was %s before and %s after. The run took %s.\n",
		r.Began.UTC().Format(time.DateOnly), machine(), r.Load, load(), r.Took.Round(time.Second))
	if r.Size.stock {
		fmt.Fprintln(&b, "containerd polled its shims every second, as it does by itself.")
	} else {
		fmt.Fprintln(&b,
			"containerd's CRI plugin, which the native columns do not have, had stats_collect_period = \"24h\". Its own\n"+
				"polling, every second, costs more than any agent here (-stock leaves it on).")
	}
	if c := r.column(bareColumn); c != nil {
		fmt.Fprintf(&b, "Bare calls were fastest at %d in parallel.\n", c.Parallel)
	}
	for _, c := range r.Columns {
		for _, note := range c.Notes {
			fmt.Fprintf(&b, "%s: %s.\n", c.Name, note)
		}
	}
	return b.String()
}

func cell(c *column, row row) string {
	v, ok := c.Values[row.key]
	if !ok {
		return "–"
	}
	return fmt.Sprintf(row.format, v)
}

// judge returns a row's aims, and which columns reached them.
func (r *report) judge(row row) string {
	bare := r.column(bareColumn)
	var out []string
	for _, aim := range row.aims {
		text := aim.column + " " + aim.text
		if c := r.column(aim.column); c != nil && bare != nil {
			result := "short"
			if aim.met(c.Values[row.key], bare.Values[row.key]) {
				result = "met"
			}
			text += ": " + result
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// whyMark begins the part of the results that people write. A new run keeps this part.
const whyMark = "## What fell short, and why"

// save writes the results, and keeps what people wrote about the last ones.
func (r *report) save(path, table string) error {
	why := whyMark + "\n\nNothing has been written about this yet.\n"
	if old, err := os.ReadFile(path); err == nil {
		if at := strings.Index(string(old), whyMark); at >= 0 {
			why = string(old[at:])
		}
	}
	text := "# What `make bench` measured\n\n" +
		"Written by `make bench`, up to the last heading. The code in this folder says how it measures.\n\n" + table +
		"\n" + why
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// machine describes the machine of the measurement, without its name.
func machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	model := "unknown CPU"
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info)
	return fmt.Sprintf("%d cores of %s, %d GiB, Linux %s, containerd 2.4",
		runtime.NumCPU(), model, info.Totalram*uint64(info.Unit)>>30, unix.ByteSliceToString(u.Release[:]))
}
