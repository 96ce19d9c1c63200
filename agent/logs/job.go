package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/berthd/berth/cri/logs"
)

// reopenTimeout bounds one asking of the runtime to reopen a log.
const reopenTimeout = 10 * time.Second

// job is what is done about the logs of one container, beside Run: all that their directory needs, or the compression of one part.
type job struct {
	dirPath  string
	id, live string
	policy   policy
	rotate   bool
	relief   relief
	compress string
}

// result is what a job did. entries and dir are nil where it could not even look.
type result struct {
	set     *set
	job     job
	dir     *logs.Directory
	entries []logs.Entry
	rotated bool
	// canceled says that the job was given up for another one.
	canceled bool
	err      error
}

// runtime is what reopens logs.
type runtime interface {
	ReopenContainerLog(ctx context.Context, id string) error
}

// run does the job. It works from what is in the directory, and may be repeated after a failure or a crash at any point.
func (j job) run(ctx context.Context, root string, rt runtime) result {
	r := result{job: j}
	dir, err := logs.OpenDirectory(root, j.dirPath)
	if errors.Is(err, fs.ErrNotExist) && j.live == "" {
		r.entries = []logs.Entry{}
		return r // its logs are gone
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

// tidy reopens, rotates and removes what has to be.
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
		fresh, rotErr = j.turn(ctx, dir, rt)
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

// remove removes files; a compression of theirs may be done meanwhile, so both forms go.
func (j job) remove(dir *logs.Directory, entries []logs.Entry) error {
	var errs []error
	for _, e := range entries {
		errs = append(errs, dir.Remove(e.Name))
	}
	return errors.Join(errs...)
}

// turn rotates the log that is written, and returns the new part's name; empty where that was taken back, because the runtime did not reopen the log.
func (j job) turn(ctx context.Context, dir *logs.Directory, rt runtime) (part string, err error) {
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
		return part, nil // only the answer was lost
	}
	return "", errors.Join(err, restoreErr)
}

// recover deals with a running container whose log's name leads nowhere: the agent ended between renaming and reopening, or somebody removed the log. The
// runtime makes it anew; should it not, the newest part, to which it may be writing, gets the name back.
func (j job) recover(ctx context.Context, dir *logs.Directory, rt runtime, i inventory) error {
	err := j.reopen(ctx, dir, rt)
	parts := i.parts(j.live)
	if err == nil || len(parts) == 0 || parts[len(parts)-1].Compressed() {
		return err
	}
	_, restoreErr := dir.Restore(j.live, parts[len(parts)-1].Name)
	return errors.Join(err, restoreErr)
}

// reopen has the runtime go on in a new file of the log's name.
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
