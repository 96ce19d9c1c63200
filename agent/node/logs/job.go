package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/berthd/berth/cri/logs"
)

// reopenTimeout bounds one request to the runtime to reopen a log.
const reopenTimeout = 10 * time.Second

// job is work on the logs of one container, in a goroutine of its own: either all that the
// directory needs, or the compression of one part.
type job struct {
	dirPath  string
	id, live string
	policy   policy
	rotate   bool
	relief   relief
	compress string
}

// result is the result of a job. entries and dir are nil if the job could not read the directory.
type result struct {
	set     *set
	job     job
	dir     *logs.Directory
	entries []logs.Entry
	rotated bool
	// canceled says that the job was stopped for a more urgent one.
	canceled bool
	err      error
}

// runtime reopens logs.
type runtime interface {
	ReopenContainerLog(ctx context.Context, id string) error
}

// run does the job. It works from the content of the directory, and may be repeated after a failure
// or a crash at any point.
func (j job) run(ctx context.Context, root string, rt runtime) result {
	r := result{job: j}
	dir, err := logs.OpenDirectory(root, j.dirPath)
	if errors.Is(err, fs.ErrNotExist) && j.live == "" {
		r.entries = []logs.Entry{}
		return r // the directory is gone
	}
	if err != nil {
		r.err = err
		return r
	}
	r.dir = dir
	if j.compress != "" {
		r.err = dir.Compress(ctx, j.compress)
		r.canceled = ctx.Err() != nil
		if errors.Is(r.err, fs.ErrNotExist) {
			r.err = nil // removed meanwhile
		}
	} else {
		r.rotated, r.err = j.tidy(ctx, dir, rt)
	}
	entries, err := dir.List()
	if r.err = errors.Join(r.err, err); err == nil {
		r.entries = entries
	}
	return r
}

// tidy reopens, rotates and removes what is necessary.
func (j job) tidy(ctx context.Context, dir *logs.Directory, rt runtime) (rotated bool, err error) {
	i, err := j.take(dir)
	if err != nil {
		return false, err
	}
	err = j.remove(dir, i.leftovers())
	fresh := ""
	switch {
	case j.live != "" && !i.has(j.live):
		err = errors.Join(err, j.recover(ctx, dir, rt, i))
	case j.rotate || j.relief.rotate:
		var rotErr error
		fresh, rotErr = j.rotateLog(ctx, dir, rt)
		err = errors.Join(err, rotErr)
	}
	rotated = fresh != ""
	if j.relief.rotate && rotated {
		err = errors.Join(err, dir.Remove(fresh))
	}
	err = errors.Join(err, j.remove(dir, j.relief.remove))
	for _, excess := range []func(inventory) []logs.Entry{
		func(i inventory) []logs.Entry { return i.excess(j.policy) },
		func(i inventory) []logs.Entry { return i.over(j.policy.container) },
	} {
		if i, takeErr := j.take(dir); takeErr != nil {
			err = errors.Join(err, takeErr)
		} else {
			err = errors.Join(err, j.remove(dir, excess(i)))
		}
	}
	return rotated, err
}

func (j job) take(dir *logs.Directory) (inventory, error) {
	entries, err := dir.List()
	return inventory{entries: entries, live: j.live}, err
}

// remove removes files. A compression may have finished meanwhile, so both forms of each file are
// removed.
func (j job) remove(dir *logs.Directory, entries []logs.Entry) error {
	var errs []error
	for _, e := range entries {
		errs = append(errs, dir.Remove(e.Name))
	}
	return errors.Join(errs...)
}

// rotateLog rotates the current log and returns the name of the new part. The name is empty if the
// runtime did not reopen the log: the rotation was then taken back.
func (j job) rotateLog(ctx context.Context, dir *logs.Directory, rt runtime) (part string, err error) {
	part, err = dir.Rotate(j.live, time.Now())
	if err != nil {
		return "", err
	}
	err = j.reopen(ctx, dir, rt)
	if err == nil {
		return part, nil
	}
	restored, restoreErr := dir.Restore(j.live, part)
	if restoreErr == nil && !restored {
		return part, nil // the runtime has reopened the log; only its answer was lost
	}
	return "", errors.Join(err, restoreErr)
}

// recover repairs a running container whose log path has no file: the agent ended between renaming
// and reopening, or somebody removed the log. The runtime is asked to make the log again. If it
// does not, the newest part gets the log's name back, because the runtime may still write to that
// part.
func (j job) recover(ctx context.Context, dir *logs.Directory, rt runtime, i inventory) error {
	err := j.reopen(ctx, dir, rt)
	parts := i.parts(j.live)
	if err == nil || len(parts) == 0 || parts[len(parts)-1].Compressed() {
		return err
	}
	_, restoreErr := dir.Restore(j.live, parts[len(parts)-1].Name)
	return errors.Join(err, restoreErr)
}

// reopen asks the runtime to continue in a new file with the log's name.
func (j job) reopen(ctx context.Context, dir *logs.Directory, rt runtime) error {
	ctx, cancel := context.WithTimeout(ctx, reopenTimeout)
	defer cancel()
	if err := rt.ReopenContainerLog(ctx, j.id); err != nil {
		return fmt.Errorf("have the runtime reopen %s: %w", j.live, err)
	}
	if _, err := dir.Size(j.live); err != nil {
		return fmt.Errorf("the runtime did not make the log anew: %w", err)
	}
	return nil
}
