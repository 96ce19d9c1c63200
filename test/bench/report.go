package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/test/images"
)

// report is one run of the benchmark.
type report struct {
	// target is the target of make that runs it, and file is the file in this folder for the results.
	target, file string
	began        time.Time
	load         string
	// stock says that containerd's config was unchanged.
	stock  bool
	tables []table
}

// table is what was measured in some columns.
type table struct {
	rows    []row
	columns []*column
}

func newReport(target, file string, stock bool) *report {
	return &report{target: target, file: file, began: time.Now(), load: load(), stock: stock}
}

func (t table) column(name string) *column {
	for _, c := range t.columns {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// finish prints the report. It writes the file of the results after a whole run.
func (r *report) finish(asJSON, whole bool) error {
	if asJSON {
		var columns []*column
		for _, t := range r.tables {
			columns = append(columns, t.columns...)
		}
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(columns)
	}
	text := r.markdown()
	fmt.Print(text)
	if !whole {
		return nil
	}
	root, err := images.Root()
	if err != nil {
		return err
	}
	return r.save(filepath.Join(root, "test", "bench", r.file), text)
}

// markdown returns the tables, and the machine on which they were measured.
func (r *report) markdown() string {
	var b strings.Builder
	for _, t := range r.tables {
		if len(t.columns) > 0 {
			t.write(&b)
		}
	}
	fmt.Fprintf(&b, "%s. %s.\nThe load average was %s before and %s after. The run took %s.\n",
		r.began.UTC().Format(time.DateOnly), machine(), r.load, load(), time.Since(r.began).Round(time.Second))
	if r.stock {
		fmt.Fprintln(&b, "containerd polled its shims every second, as it does by itself.")
	} else {
		fmt.Fprintln(&b,
			"containerd's CRI plugin, which the native columns do not have, had stats_collect_period = \"24h\". Its own\n"+
				"polling, every second, costs more than any agent here (-stock leaves it on).")
	}
	for _, t := range r.tables {
		if c := t.column(bareColumn); c != nil {
			fmt.Fprintf(&b, "Bare calls were fastest at %d in parallel.\n", c.Parallel)
		}
		for _, c := range t.columns {
			for _, note := range c.Notes {
				fmt.Fprintf(&b, "%s: %s.\n", c.Name, note)
			}
		}
	}
	return b.String()
}

func (t table) write(b *strings.Builder) {
	fmt.Fprint(b, "| What |")
	for _, c := range t.columns {
		fmt.Fprintf(b, " %s |", c.Name)
	}
	fmt.Fprint(b, " aims |\n|---|", strings.Repeat("---|", len(t.columns)+1), "\n")
	for _, row := range t.rows {
		fmt.Fprintf(b, "| %s |", row.title)
		for _, c := range t.columns {
			fmt.Fprintf(b, " %s |", cell(c, row))
		}
		fmt.Fprintf(b, " %s |\n", t.judge(row))
	}
	fmt.Fprintln(b)
}

func cell(c *column, row row) string {
	v, ok := c.Values[row.key]
	if !ok {
		return "–"
	}
	return fmt.Sprintf(row.format, v)
}

// judge returns a row's aims, and which columns reached them.
func (t table) judge(row row) string {
	var out []string
	for _, aim := range row.aims {
		text := aim.column + " " + aim.text
		c, beside := t.column(aim.column), t.column(aim.beside)
		if c != nil && (beside != nil || aim.beside == "") {
			var base float64
			if beside != nil {
				base = beside.Values[row.key]
			}
			result := "short"
			if aim.met(c.Values[row.key], base) {
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
func (r *report) save(path, tables string) error {
	why := whyMark + "\n\nNothing has been written about this yet.\n"
	if old, err := os.ReadFile(path); err == nil {
		if at := strings.Index(string(old), whyMark); at >= 0 {
			why = string(old[at:])
		}
	}
	text := "# What `make " + r.target + "` measured\n\n" +
		"Written by `make " + r.target + "`, up to the last heading. The code in this folder says how it measures.\n\n" +
		tables + "\n" + why
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
