package csidriver

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ephemeral is the attribute of an inline volume, which a node adds if the driver asks for it.
// "inline" in a volume's attributes means the same.
const ephemeral = "csi.storage.k8s.io/ephemeral"

// NodeStageVolume mounts a volume's folder at the staging path.
func (d *Driver) NodeStageVolume(
	_ context.Context, r *csiapi.NodeStageVolumeRequest,
) (*csiapi.NodeStageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "something is missing")
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		_, err := d.device(r.GetVolumeId())
		return &csiapi.NodeStageVolumeResponse{}, internal(err)
	}
	data, err := d.data(r.GetVolumeId())
	if err == nil {
		err = bind(data, r.GetStagingTargetPath(), false)
	}
	return &csiapi.NodeStageVolumeResponse{}, internal(err)
}

// NodeUnstageVolume undoes NodeStageVolume.
func (d *Driver) NodeUnstageVolume(
	_ context.Context, r *csiapi.NodeUnstageVolumeRequest,
) (*csiapi.NodeUnstageVolumeResponse, error) {
	d.forget(r.GetVolumeId())
	return &csiapi.NodeUnstageVolumeResponse{}, internal(unmount(r.GetStagingTargetPath()))
}

// NodePublishVolume mounts a volume at the target path, which it makes. An inline volume is in
// memory. Other volumes are mounted from their staging path.
func (d *Driver) NodePublishVolume(
	_ context.Context, r *csiapi.NodePublishVolumeRequest,
) (*csiapi.NodePublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "something is missing")
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return &csiapi.NodePublishVolumeResponse{}, internal(d.publishDevice(r))
	}
	if err := os.Mkdir(r.GetTargetPath(), 0o750); err != nil && !os.IsExist(err) {
		return nil, internal(err)
	}
	if r.GetVolumeContext()["inline"] != "" || r.GetVolumeContext()[ephemeral] == "true" {
		return &csiapi.NodePublishVolumeResponse{}, internal(inline(r))
	}
	from := r.GetStagingTargetPath()
	if d.can(csiapi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		if mounted, err := mountinfo.Mounted(from); err != nil || !mounted {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %q: %v", r.GetVolumeId(),
				from, err)
		}
	} else {
		var err error
		if from, err = d.data(r.GetVolumeId()); err != nil {
			return nil, internal(err)
		}
	}
	return &csiapi.NodePublishVolumeResponse{}, internal(bind(from, r.GetTargetPath(), r.GetReadonly()))
}

// inline mounts a tmpfs with a file for each attribute.
func inline(r *csiapi.NodePublishVolumeRequest) error {
	target := r.GetTargetPath()
	if mounted, err := mountinfo.Mounted(target); err != nil {
		return err
	} else if !mounted {
		options := "size=1m"
		if group := r.GetVolumeCapability().GetMount().GetVolumeMountGroup(); group != "" {
			if _, err := strconv.Atoi(group); err != nil {
				return err
			}
			options += ",mode=2770,gid=" + group
		}
		if err := unix.Mount("csi", target, "tmpfs", 0, options); err != nil {
			return err
		}
	}
	for key, value := range r.GetVolumeContext() {
		if err := os.WriteFile(filepath.Join(target, strings.ReplaceAll(key, "/", "_")), []byte(value),
			0o644); err != nil {
			return err
		}
	}
	if r.GetReadonly() {
		return unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	return nil
}

// NodeUnpublishVolume undoes NodePublishVolume.
func (d *Driver) NodeUnpublishVolume(
	_ context.Context, r *csiapi.NodeUnpublishVolumeRequest,
) (*csiapi.NodeUnpublishVolumeResponse, error) {
	err := unmount(r.GetTargetPath())
	if err == nil {
		if err = os.Remove(r.GetTargetPath()); os.IsNotExist(err) {
			err = nil
		}
	}
	return &csiapi.NodeUnpublishVolumeResponse{}, internal(err)
}

// NodeGetVolumeStats returns how full a volume is.
func (d *Driver) NodeGetVolumeStats(
	_ context.Context, r *csiapi.NodeGetVolumeStatsRequest,
) (*csiapi.NodeGetVolumeStatsResponse, error) {
	if mounted, err := mountinfo.Mounted(r.GetVolumePath()); err != nil || !mounted {
		return nil, status.Error(codes.NotFound, "nothing is published there")
	}
	return &csiapi.NodeGetVolumeStatsResponse{Usage: []*csiapi.VolumeUsage{
		{Unit: csiapi.VolumeUsage_BYTES, Total: 1000, Used: 300, Available: 700},
		{Unit: csiapi.VolumeUsage_INODES, Total: 10, Used: 3, Available: 7},
	}}, nil
}

// NodeExpandVolume records that a volume has grown. The volume must be published.
func (d *Driver) NodeExpandVolume(
	_ context.Context, r *csiapi.NodeExpandVolumeRequest,
) (*csiapi.NodeExpandVolumeResponse, error) {
	if mounted, err := mountinfo.Mounted(r.GetVolumePath()); err != nil || !mounted {
		return nil, status.Error(codes.NotFound, "nothing is published there")
	}
	return &csiapi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}

// data returns a volume's folder.
func (d *Driver) data(handle string) (string, error) {
	path := filepath.Join(d.Dir, "volumes", filepath.Base(handle))
	return path, os.MkdirAll(path, 0o755)
}

// bind mounts a folder at a path, unless something is mounted there.
func bind(from, at string, readOnly bool) error {
	if mounted, err := mountinfo.Mounted(at); err != nil || mounted {
		return err
	}
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if readOnly {
		return unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	return nil
}

// unmount unmounts what is mounted on a path, if anything is.
func unmount(path string) error {
	mounted, err := mountinfo.Mounted(path)
	if os.IsNotExist(err) || err == nil && !mounted {
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
}

func internal(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.Internal, err.Error())
}
