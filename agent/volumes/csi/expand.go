package csi

import (
	"context"
	"errors"
	"fmt"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The errors of [Node.Expand], beside [NotRegistered]. Every other error is an ordinary failure.
var (
	// ErrCannotExpand means that the driver does not expand volumes on the node.
	ErrCannotExpand = errors.New("the driver does not have volumes grow on the node")
	// ErrInUse means that the driver does not expand the volume while it is in use.
	ErrInUse = errors.New("the volume does not grow while it is in use")
	// ErrInfeasible means that the driver can never expand the volume so far.
	ErrInfeasible = errors.New("the volume cannot grow so far")
)

// expandError is an error with the kubelet's words.
type expandError struct {
	text  string
	class error
}

// Error returns the kubelet's words.
func (e *expandError) Error() string { return e.text }

// Unwrap returns the sentinel.
func (e *expandError) Unwrap() error { return e.class }

// HasDriver reports whether a volume's driver is registered.
func (n *Node) HasDriver(v *Volume) bool {
	_, err := n.deps.Drivers.Get(v.Driver)
	return err == nil
}

// Expand asks the driver to expand a published volume to a size. It may be repeated.
func (n *Node) Expand(ctx context.Context, v *Volume, size resource.Quantity) error {
	driver, err := n.deps.Drivers.Get(v.Driver)
	if err != nil {
		return err
	}
	c, err := n.deps.Drivers.connect(driver)
	if err != nil {
		return err
	}
	defer c.close()
	can, err := c.capabilities(ctx)
	if err != nil {
		return fmt.Errorf("Expander.NodeExpand failed to check if node supports expansion : %w", err)
	}
	if !can[expands] {
		return &expandError{text: "NodeExpand is not supported by the CSI driver " + v.Driver, class: ErrCannotExpand}
	}
	secrets, err := n.secrets(ctx, v, v.ExpandSecret)
	if err != nil {
		return fmt.Errorf("expander.NodeExpand failed to get NodeExpandSecretRef %s/%s: %w", v.ExpandSecret.Namespace,
			v.ExpandSecret.Name, errors.Unwrap(err))
	}
	unlock, err := n.lock(ctx, v.UniqueName())
	if err != nil {
		return err
	}
	defer unlock()
	r := n.recordOf(v)
	capability := v.capability(can)
	if mount := capability.GetMount(); mount != nil {
		mount.VolumeMountGroup = ""
	}
	_, err = bounded(ctx, func(ctx context.Context) (*csiapi.NodeExpandVolumeResponse, error) {
		return c.node.NodeExpandVolume(ctx, &csiapi.NodeExpandVolumeRequest{
			VolumeId:          v.Handle,
			VolumePath:        n.target(v.Pod.UID, v.key()),
			StagingTargetPath: n.stagedAt(&r),
			CapacityRange:     &csiapi.CapacityRange{RequiredBytes: size.Value()},
			VolumeCapability:  capability,
			Secrets:           secrets,
		})
	})
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.FailedPrecondition:
		return &expandError{text: "Expander.NodeExpand failed to expand the volume : " + err.Error(), class: ErrInUse}
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return &expandError{
			text: "Expander.NodeExpand failed to expand the volume " + err.Error(), class: ErrInfeasible,
		}
	}
	return fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err)
}
