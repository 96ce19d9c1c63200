package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/cri/native/output"
)

// The reasons of a container's end. OOMKilled is the CRI's, the others are those of containerd's
// CRI plugin, which people know.
const (
	reasonCompleted, reasonError, reasonOOM = "Completed", "Error", "OOMKilled"
	reasonStartError, reasonUnknown         = "StartError", "Unknown"
	// startErrorCode is the exit code of a container that could not be started.
	startErrorCode = 128
)

// containerRecord is what the disk keeps of a container. Times are in nanoseconds since 1970, and 0
// if there was no such moment.
type containerRecord struct {
	ID        string                               `json:"id"`
	SandboxID string                               `json:"sandboxID"`
	Config    message[*runtimeapi.ContainerConfig] `json:"config"`
	// ImageID and ImageRef are the image as Image.id, and as its digest in a registry if it has one.
	ImageID  string `json:"imageID"`
	ImageRef string `json:"imageRef"`
	LogPath  string `json:"logPath,omitempty"`
	// StopSignal is the name of the signal that asks the container to end.
	StopSignal string `json:"stopSignal"`
	User       user   `json:"user"`
	// OOMFile counts the processes that were killed for lack of memory.
	OOMFile    string `json:"oomFile,omitempty"`
	CreatedAt  int64  `json:"createdAt"`
	StartedAt  int64  `json:"startedAt,omitempty"`
	FinishedAt int64  `json:"finishedAt,omitempty"`
	ExitCode   int32  `json:"exitCode,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
}

// recordID implements [recorded].
func (rec *containerRecord) recordID() string {
	if rec == nil {
		return ""
	}
	return rec.ID
}

// user is who a container's first process is.
type user struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// container is a container of a sandbox.
type container struct {
	id, sandboxID string
	config        *runtimeapi.ContainerConfig
	uid           string // the pod's
	turn          turn

	mu     sync.Mutex
	record containerRecord
	task   client.Task   // nil without a process
	io     *containerIO  // nil without a process
	ended  chan struct{} // closed when the process has ended; nil without a process
	layer  measuredLayer
}

func newContainer(record containerRecord, podUID string) *container {
	return &container{
		id: record.ID, sandboxID: record.SandboxID, config: record.Config.of, uid: podUID, turn: newTurn(), record: record,
	}
}

// snapshot returns a copy of what is known of the container.
func (c *container) snapshot() containerRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record
}

// state computes the state from the record.
func (rec *containerRecord) state() runtimeapi.ContainerState {
	switch {
	case rec.FinishedAt != 0:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case rec.StartedAt != 0:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return runtimeapi.ContainerState_CONTAINER_CREATED
}

// running returns the task of a container that runs, or errdefs.ErrFailedPrecondition.
func (c *container) running() (client.Task, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.task == nil || c.record.state() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, classify.As(errdefs.ErrFailedPrecondition, fmt.Sprintf("container %s does not run", c.id))
	}
	return c.task, nil
}

// pid returns the container's first process, 0 if it does not run.
func (c *container) pid() uint32 {
	task, err := c.running()
	if err != nil {
		return 0
	}
	return task.Pid()
}

// closeIO ends the copying of the container's output. A later process of berth goes on with it.
func (c *container) closeIO() {
	c.mu.Lock()
	streams := c.io
	c.mu.Unlock()
	if streams != nil {
		streams.close()
	}
}

// change changes the record, in memory and on the disk.
func (r *Runtime) changeContainer(c *container, change func(*containerRecord)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.record
	change(&changed)
	if err := r.store.containerRecords.save(c.id, &changed); err != nil {
		return err
	}
	c.record = changed
	return nil
}

// noteContainer is changeContainer for what is so already. It counts even if the disk is full. The
// next process of berth finds it again, but for how a container ended.
func (r *Runtime) noteContainer(c *container, change func(*containerRecord)) {
	err := r.changeContainer(c, change)
	if err == nil {
		return
	}
	r.cfg.Logger.Error("what has become of a container could not be recorded: after a restart its exit code is lost",
		"container", c.id, "error", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.record)
}

// CreateContainer implements [cri.ContainerRuntime].
func (r *Runtime) CreateContainer(
	ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig,
) (string, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	sb, err := r.store.sandbox(sandboxID)
	if err != nil {
		return "", err
	}
	if err := checkContainer(config); err != nil {
		return "", err
	}
	record := containerRecord{
		ID: newID(), SandboxID: sandboxID, Config: message[*runtimeapi.ContainerConfig]{proto.CloneOf(config)},
		CreatedAt: time.Now().UnixNano(),
	}
	if dir := sb.config.GetLogDirectory(); dir != "" && config.GetLogPath() != "" {
		record.LogPath = filepath.Join(dir, config.GetLogPath())
	}
	if err := r.store.takeSandbox(ctx, sb); err != nil {
		return "", err
	}
	defer sb.turn.give()
	c := newContainer(record, sb.uid())
	c.turn <- struct{}{} // nobody else knows it yet
	defer c.turn.give()
	if err := r.store.addContainer(c); err != nil {
		return "", err
	}
	if err := r.create(ctx, sb, c); err != nil {
		err = fmt.Errorf("create container %s of pod %s/%s: %w", config.GetMetadata().GetName(),
			sb.config.GetMetadata().GetNamespace(), sb.config.GetMetadata().GetName(), err)
		undo, cancel := undoing(ctx)
		defer cancel()
		return "", errors.Join(err, r.forgetContainer(undo, c))
	}
	r.emit(cri.ContainerCreated, c.id, c.uid)
	return c.id, nil
}

// create records a container and makes it in containerd.
func (r *Runtime) create(ctx context.Context, sb *sandbox, c *container) error {
	img, err := r.Use(ctx, c.config.GetImage().GetImage())
	if err != nil {
		// The class of a missing image would say that the sandbox is missing.
		return classify.As(errdefs.ErrFailedPrecondition, err.Error())
	}
	signal, err := stopSignal(c.config.GetStopSignal(), img.Settings.StopSignal)
	if err != nil {
		return err
	}
	err = r.changeContainer(c, func(rec *containerRecord) {
		rec.ImageID, rec.ImageRef, rec.StopSignal = img.ID, img.ID, signal
		if len(img.Digests) > 0 {
			rec.ImageRef = img.Digests[0]
		}
	})
	if err != nil {
		return err
	}
	ctx, release, err := r.Leased(ctx) // until the container keeps its snapshots
	if err != nil {
		return err
	}
	defer release()
	volumes := &imageVolumes{runtime: r, id: c.id, labels: map[string]string{kindLabel: "container"}}
	spec, err := r.containerSpec(ctx, sb, c, img, volumes)
	if err != nil {
		return err
	}
	of, _ := sb.snapshot()
	handler, err := r.handler(of.Handler)
	if err != nil {
		return err
	}
	made, err := r.client.NewContainer(ctx, c.id,
		client.WithImage(img),
		client.WithSnapshotter(img.Snapshotter),
		client.WithNewSnapshot(c.id, img, userns(sb.namespaces()).snapshot()...),
		client.WithContainerLabels(volumes.labels),
		client.WithRuntime(shim, handler),
		client.WithNewSpec(spec...))
	if err != nil {
		return foreign(err)
	}
	written, err := made.Spec(ctx)
	if err != nil {
		return err
	}
	r.plugins.PostCreateContainer(ctx, c.id, func(made *api.Container) { describe(made, written) })
	who := written.Process.User
	return r.changeContainer(c, func(rec *containerRecord) {
		rec.User = user{UID: who.UID, GID: who.GID, Groups: who.AdditionalGids}
	})
}

// foreign keeps "not found" of something that a container needs from saying that the
// container itself is missing.
func foreign(err error) error {
	if errdefs.IsNotFound(err) || errdefs.IsAlreadyExists(err) {
		return classify.As(errdefs.ErrFailedPrecondition, err.Error())
	}
	return err
}

// RemoveContainer implements [cri.ContainerRuntime]. It kills the container if it runs. The log
// stays: who manages logs removes them.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	c, err := r.store.container(id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	if err := r.stopContainer(ctx, c, 0); err != nil {
		return err
	}
	if err := r.store.takeContainer(ctx, c); err != nil {
		return onlyIfNot(err, errdefs.IsNotFound)
	}
	defer c.turn.give()
	if err := r.forgetContainer(ctx, c); err != nil {
		return err
	}
	r.emit(cri.ContainerDeleted, id, c.uid)
	return nil
}

// forgetContainer removes what a container has, and last its record.
func (r *Runtime) forgetContainer(ctx context.Context, c *container) error {
	if err := r.deleteContainer(ctx, c.id); err != nil {
		return err
	}
	if sb, err := r.store.sandbox(c.sandboxID); err == nil {
		if err := r.removeCgroup(sb.config.GetLinux().GetCgroupParent(), c.id); err != nil {
			return err
		}
	}
	c.closeIO()
	if err := errors.Join(r.removeVolumes(ctx, c.id, c.config), r.removeDeclared(ctx, c.id)); err != nil {
		return err
	}
	if err := removePipes(r.containerDir(c.id)); err != nil {
		return fmt.Errorf("remove the pipes of container %s: %w", c.id, err)
	}
	if err := r.store.containerRecords.remove(c.id); err != nil {
		return err
	}
	r.store.removeContainer(c)
	r.plugins.RemoveContainer(ctx, c.id)
	return nil
}

// removePipes removes a directory of pipes, which has no other directories in it, and ends what
// keeps them open.
func removePipes(dir string) error {
	if err := output.EndKeeper(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
