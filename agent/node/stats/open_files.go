package stats

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// containerKey is a container of a pod.
type containerKey struct {
	pod types.UID
	id  string
}

// openFiles is what a container's processes had open at a time.
type openFiles struct {
	at             time.Time
	files, sockets int
}

// running are a container's processes, and what is known of what they have open.
type running struct {
	pids []int
	open wanted[containerKey, openFiles]
}

// running finds the processes of a reading's containers, by the containers' ids, and begins to
// count what they have open. It forgets the containers that run no more.
func (c *Collector) running(r *reading) map[string]running {
	out := map[string]running{}
	for i := range r.pods {
		for _, k := range r.pods[i].containers {
			pids := c.cgroups().Processes(k.path)
			out[k.id] = running{pids, c.openFilesOf(containerKey{r.pods[i].pod.UID, k.id}, pids)}
		}
	}
	c.files.keep(func(k containerKey) bool {
		_, runs := out[k.id]
		return runs
	})
	return out
}

// openFilesOf wants to know what a container's processes have open now. A process can have a
// million files open, so counting them has the pod's budget.
func (c *Collector) openFilesOf(container containerKey, pids []int) wanted[containerKey, openFiles] {
	return c.files.want(container, 0, func(ctx context.Context) (out openFiles, err error) {
		err = c.budget.spend(ctx, container.pod, func(t *turn) error {
			out.at = time.Now()
			for _, pid := range pids {
				if err := out.add(ctx, t, filepath.Join(c.cfg.Proc, strconv.Itoa(pid), "fd")); err != nil {
					return err
				}
			}
			return nil
		})
		return out, err
	})
}

// add adds what one process has open, which are the links in a directory. It fails only if the
// count is to end.
func (o *openFiles) add(ctx context.Context, t *turn, dir string) error {
	open, err := os.Open(dir)
	if err != nil {
		return nil // the process has just ended
	}
	defer func() { _ = open.Close() }()
	for {
		names, err := open.Readdirnames(progressEvery)
		for _, name := range names {
			o.files++
			if to, err := os.Readlink(filepath.Join(dir, name)); err == nil && strings.HasPrefix(to, "socket:") {
				o.sockets++
			}
		}
		if err != nil {
			return nil // that was all, or the process has just ended
		}
		if err := t.next(ctx); err != nil {
			return err
		}
	}
}

// addOpenFiles adds the metrics of what a container has open, and of the limit of its first
// process.
func (c *Collector) addOpenFiles(
	ctx context.Context, e *emitter, of running, labels []string,
) {
	if open, known := of.open.value(ctx); known {
		e.add(fileCount, open.at, float64(open.files), labels...)
		e.add(socketCount, open.at, float64(open.sockets), labels...)
	}
	if len(of.pids) == 0 {
		return
	}
	for line := range strings.Lines(c.proc(filepath.Join(strconv.Itoa(of.pids[0]), "limits"))) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok && len(strings.Fields(rest)) > 0 {
			soft, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				soft = -1
			}
			e.add(fileLimit, time.Now(), soft, append([]string{"max_open_files"}, labels...)...)
		}
	}
}
