package watched

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/berthd/berth/agent/source/objects"
)

// kindAttachment is the kind of VolumeAttachments. Manifests have none.
const kindAttachment = "VolumeAttachment"

// CSIDriver returns a driver's object, nil if the server has none. The error is [ErrPending] while
// the object is being fetched.
func (w *Watcher) CSIDriver(name string) (*storagev1.CSIDriver, error) {
	items, err := w.all(allDrivers)
	if err != nil {
		return nil, err
	}
	out, _ := items[objects.Key{Kind: objects.KindCSIDriver, Name: name}].(*storagev1.CSIDriver)
	return out, nil
}

// Fetch fetches a Secret that a volume names, and not the pod. It is not kept.
func (w *Watcher) Fetch(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	got, err := w.api.get(ctx, objects.Key{Kind: objects.KindSecret, Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	secret, ok := got.(*v1.Secret)
	if !ok {
		return nil, fmt.Errorf("the server sent a %T", got)
	}
	return secret, nil
}

// Attachment fetches the metadata that a volume's attacher has for the node. The error has the
// kubelet's words if the volume is not attached, or is being detached.
func (w *Watcher) Attachment(ctx context.Context, name string) (map[string]string, error) {
	got, err := w.api.get(ctx, objects.Key{Kind: kindAttachment, Name: name})
	if err != nil {
		return nil, fmt.Errorf("volume attachment %s: %w", name, err)
	}
	attachment, ok := got.(*storagev1.VolumeAttachment)
	switch {
	case !ok:
		return nil, fmt.Errorf("volume attachment %s: the server sent a %T", name, got)
	case attachment.DeletionTimestamp != nil:
		return nil, fmt.Errorf("volume attachment is being deleted: %s", name)
	case attachment.Status.AttachError != nil && !attachment.Status.Attached:
		return nil, errors.New(attachment.Status.AttachError.Message)
	case !attachment.Status.Attached:
		return nil, fmt.Errorf("volume attachment %s is not attached yet", name)
	}
	return attachment.Status.AttachmentMetadata, nil
}
