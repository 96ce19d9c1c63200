package runtimes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/joint"
)

// choose returns the runtimes to use now. It fails while that cannot be said, because a runtime
// that may have pods does not answer.
func (r *Runtime) choose(ctx context.Context) (joint.Members, error) {
	known, err := readNotes(r.cfg.RootDir)
	if err != nil {
		return joint.Members{}, err
	}
	if r.cfg.Berth.Runtime == configs.RuntimeRemote {
		return r.remoteFirst(ctx, known)
	}
	_, silent := r.remote.Version(ctx)
	kind, err := r.kind(ctx, known, silent)
	if err != nil {
		return joint.Members{}, err
	}
	if kind == configs.RuntimeRemote {
		return r.remoteFirst(ctx, known)
	}
	return r.nativeFirst(ctx, known, silent)
}

// kind returns the runtime that makes new pods, if the config does not say remote. silent is why
// the CRI socket does not answer.
func (r *Runtime) kind(ctx context.Context, known notes, silent error) (configs.RuntimeKind, error) {
	switch {
	case r.cfg.Berth.Runtime == configs.RuntimeNative:
		return configs.RuntimeNative, nil
	case silent == nil:
		return configs.RuntimeRemote, nil
	case errdefs.IsNotImplemented(silent), known.last() == configs.RuntimeNative:
		return configs.RuntimeNative, nil
	case !errdefs.IsUnavailable(silent), known.has(configs.RuntimeRemote), r.sameSocket():
		return "", fmt.Errorf("choose between the CRI socket and the native runtime: %w", silent)
	}
	if err := reach(ctx, Address(r.cfg)); err != nil {
		return "", fmt.Errorf("choose between the CRI socket and the native runtime: %w", errors.Join(silent, err))
	}
	return configs.RuntimeNative, nil
}

// remoteFirst returns the CRI socket's runtime, with the native one if that may have pods.
func (r *Runtime) remoteFirst(ctx context.Context, known notes) (joint.Members, error) {
	members := joint.Members{First: r.socketMember()}
	next := notes{Kinds: []configs.RuntimeKind{configs.RuntimeRemote}}
	if known.has(configs.RuntimeNative) {
		var err error
		next.Native = r.place(known)
		if members.Former, err = r.openNative(ctx, next.Native); err != nil {
			return joint.Members{}, err
		}
		next.Kinds = append(next.Kinds, configs.RuntimeNative)
	}
	return r.noted(members, next)
}

// nativeFirst returns the native runtime, with the CRI socket's if that may have pods. silent is
// why the CRI socket does not answer.
func (r *Runtime) nativeFirst(ctx context.Context, known notes, silent error) (joint.Members, error) {
	noted := known.has(configs.RuntimeRemote)
	switch {
	case silent == nil, errdefs.IsNotImplemented(silent):
	case noted:
		return joint.Members{}, fmt.Errorf("pods may run by the CRI socket %s (%s says so), and it does not answer: %w",
			r.cfg.Kubelet.ContainerRuntimeEndpoint, notesFile(r.cfg.RootDir), silent)
	case !errdefs.IsUnavailable(silent):
		return joint.Members{}, silent
	}
	next := notes{Kinds: []configs.RuntimeKind{configs.RuntimeNative}, Native: r.place(known)}
	native, err := r.openNative(ctx, next.Native)
	if err != nil {
		return joint.Members{}, err
	}
	members := joint.Members{First: native}
	if silent == nil && (noted || len(known.Kinds) == 0) {
		members.Former = r.socketMember()
		next.Kinds = append(next.Kinds, configs.RuntimeRemote)
	}
	return r.noted(members, next)
}

// place returns where the native runtime is: where the config wants it, or where it has pods, which
// a change of the config does not move.
func (r *Runtime) place(known notes) place {
	wanted := place{Address: Address(r.cfg), Namespace: Namespace(r.cfg)}
	if known.Native == (place{}) || known.Native == wanted {
		return wanted
	}
	records, err := filepath.Glob(filepath.Join(nativeHome(r.cfg.RootDir), "root", "*", "*.json"))
	if err == nil && len(records) == 0 {
		return wanted
	}
	r.deps.Logger.Warn("the native runtime has pods elsewhere than the config says, and stays there until it is started "+
		"without a pod", "address", known.Native.Address, "namespace", known.Native.Namespace)
	return known.Native
}

// noted notes the runtimes that may have pods from now on.
func (r *Runtime) noted(members joint.Members, next notes) (joint.Members, error) {
	if err := next.write(r.cfg.RootDir); err != nil {
		members.First.Close()
		if members.Former != nil {
			members.Former.Close()
		}
		return joint.Members{}, err
	}
	return members, nil
}

// emptied notes that the runtime of new pods is the only one that has pods.
func (r *Runtime) emptied() error {
	known, err := readNotes(r.cfg.RootDir)
	if err != nil {
		return err
	}
	only := notes{Kinds: []configs.RuntimeKind{known.last()}}
	if only.has(configs.RuntimeNative) {
		only.Native = known.Native
	}
	return only.write(r.cfg.RootDir)
}
