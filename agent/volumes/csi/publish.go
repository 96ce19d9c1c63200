package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/atomicfile"
)

// Up asks the driver to stage and publish a volume that [Node.Prepare] has allowed. The volume may
// be published already. own reports that the volume's files still have to be given to the pod's
// fsGroup. [Node.Done] ends what Up began.
func (n *Node) Up(ctx context.Context, v *Volume) (own bool, err error) {
	driver, err := n.deps.Drivers.Get(v.Driver)
	if err != nil {
		return false, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: %w", err)
	}
	c, err := n.deps.Drivers.connect(driver)
	if err != nil {
		return false, err
	}
	defer c.close()
	can, err := c.capabilities(ctx)
	if err != nil {
		return false, fmt.Errorf("kubernetes.io/csi: ask CSI driver %s what it can do: %w", v.Driver, err)
	}
	unlock, err := n.lock(ctx, v.UniqueName())
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := n.alone(v); err != nil {
		return false, err
	}
	context, err := n.publishContext(ctx, v)
	if err != nil {
		return false, err
	}
	if err := n.noOther(v); err != nil {
		return false, err
	}
	// From here on the driver may have made something. The record makes sure that the driver is
	// asked to undo it.
	if err := n.keep(v.Pod.UID, v.key(), n.recordOf(v)); err != nil {
		return false, fmt.Errorf("kubernetes.io/csi: save volume info: %w", err)
	}
	up, _, err := n.IsUp(v)
	if err != nil {
		return false, err
	}
	if !up {
		if err := n.note(v, progress{}); err != nil {
			return false, err
		}
	}
	call := &call{n: n, c: c, v: v, capability: v.capability(can), context: context}
	if can[stages] && !v.Inline && !up {
		if err := call.stage(ctx); err != nil {
			return false, v.stageError(err)
		}
	}
	if can[stages] && !v.Inline {
		r := n.recordOf(v)
		call.staging = n.stagedAt(&r)
	}
	if v.Block {
		if err := n.prepareDevice(v); err != nil {
			return false, err
		}
	}
	if err := call.publish(ctx); err != nil {
		return false, v.publishError(err)
	}
	if v.Block {
		return false, n.mapDevice(v)
	}
	return !up && v.GroupWanted() && !can[mountsWithGroup], nil
}

// Done records that a volume is up and that its files belong to the group.
func (n *Node) Done(v *Volume) error {
	target := n.target(v.Pod.UID, v.key())
	mounted, err := n.deps.IsMounted(target)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("CSI driver %s has published nothing at %s", v.Driver, target)
	}
	if err != nil {
		return err
	}
	return n.note(v, progress{Up: true, Mounted: mounted, Republish: v.republishes(), Attached: v.attached})
}

// noOther refuses a volume in whose place the pod has another one: an inline volume can have the
// name of the PersistentVolume of a claim.
func (n *Node) noOther(v *Volume) error {
	r, err := readRecord(n.recordDir(v.Pod.UID, v.key()))
	if err != nil || r == nil || r.Driver == v.Driver && r.Handle == v.Handle {
		return nil //nolint:nilerr // a damaged record is written anew
	}
	return fmt.Errorf("kubernetes.io/csi: the pod has volume %s of driver %s in the place of volume %s of driver %s: "+
		"give the pod's own volume another name than %q", r.Handle, r.Driver, v.Handle, v.Driver, v.Name)
}

// note writes how far a volume came.
func (n *Node) note(v *Volume, p progress) error {
	p.Boot = n.boot
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	ready := n.readyPath(v.Pod.UID, v.key())
	// The file means nothing after the next start of the machine, because it names the run.
	if err := writeFile(ready, data, atomicfile.OverCrash); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.Up && p.Republish {
		n.published[ready] = time.Now()
	}
	return nil
}

// publishContext is what the attacher reports to the driver.
func (n *Node) publishContext(ctx context.Context, v *Volume) (map[string]string, error) {
	if !v.attached {
		return nil, nil
	}
	return n.deps.Attachment(ctx, v.Pod, AttachmentName(v.Handle, v.Driver, n.cfg.NodeName))
}

// call has what the requests of one Up share.
type call struct {
	n          *Node
	c          *client
	v          *Volume
	capability *csiapi.VolumeCapability
	context    map[string]string
	// staging is where the volume is staged. It is empty if the volume is not staged.
	staging string
}

// stageRecord is the record of a staged volume.
func (n *Node) stageRecord(v *Volume) record {
	if v.Block {
		return n.recordOf(v)
	}
	return record{Handle: v.Handle, Driver: v.Driver}
}

// stageError and publishError say which operation failed, in the kubelet's words.
func (v *Volume) stageError(err error) error {
	if v.Block {
		return &Failed{Operation: "MapVolume.SetUpDevice", Err: err}
	}
	return &Failed{Operation: "MountVolume.MountDevice", Err: err}
}

func (v *Volume) publishError(err error) error {
	if v.Block {
		return &Failed{Operation: "MapVolume.MapPodDevice", Err: err}
	}
	return fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed: %w", err)
}

// stage asks the driver to stage the volume, once in a process's life. The volume stays staged for
// all pods.
func (c *call) stage(ctx context.Context) error {
	n, v := c.n, c.v
	record := n.stageRecord(v)
	dir, staging := n.stageRecordDir(&record), n.stagedAt(&record)
	if r, err := readRecord(dir); n.isStaged(v.UniqueName()) && r != nil && err == nil {
		return nil
	}
	if err := os.MkdirAll(staging, dirMode); err != nil {
		return err
	}
	if err := writeRecord(dir, record); err != nil {
		return err
	}
	secrets, err := n.secrets(ctx, v, v.StageSecret)
	if err != nil {
		return err
	}
	_, err = bounded(ctx, func(ctx context.Context) (*csiapi.NodeStageVolumeResponse, error) {
		return c.c.node.NodeStageVolume(ctx, &csiapi.NodeStageVolumeRequest{
			VolumeId: v.Handle, PublishContext: c.context, StagingTargetPath: staging, VolumeCapability: c.capability,
			Secrets: secrets, VolumeContext: v.Attributes,
		})
	})
	if err != nil {
		return err
	}
	n.setStaged(v.UniqueName(), true)
	return nil
}

// publish asks the driver to publish the volume. The driver makes the last directory of the path
// itself.
func (c *call) publish(ctx context.Context) error {
	n, v := c.n, c.v
	secrets, err := n.secrets(ctx, v, v.PublishSecret)
	if err != nil {
		return err
	}
	if v.tokens != "" && v.tokensInSecrets() {
		if secrets == nil {
			secrets = map[string]string{}
		}
		secrets[tokensKey] = v.tokens
	}
	_, err = bounded(ctx, func(ctx context.Context) (*csiapi.NodePublishVolumeResponse, error) {
		return c.c.node.NodePublishVolume(ctx, &csiapi.NodePublishVolumeRequest{
			VolumeId:          v.Handle,
			PublishContext:    c.context,
			StagingTargetPath: c.staging,
			TargetPath:        n.target(v.Pod.UID, v.key()),
			VolumeCapability:  c.capability,
			Readonly:          v.ReadOnly,
			Secrets:           secrets,
			VolumeContext:     v.attributes(),
		})
	})
	return err
}

// secrets returns the content of the Secret with which a driver logs in.
func (n *Node) secrets(ctx context.Context, v *Volume, ref *v1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	data, err := n.deps.Secret(ctx, v.Pod, ref)
	if err != nil {
		return nil, fmt.Errorf("fetching NodePublishSecretRef %s/%s failed: %w", ref.Namespace, ref.Name, err)
	}
	out := make(map[string]string, len(data))
	for k, b := range data {
		out[k] = string(b)
	}
	return out, nil
}
