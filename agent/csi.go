package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/csinode"
	"github.com/berthd/berth/agent/plugins"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/tokens"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/agent/volumes/expand"
)

// newGrowth returns what has volumes of a cluster's claims grow, nil without a cluster.
func (a *Agent) newGrowth() (*expand.Expander, error) {
	if a.deps.Conn == nil {
		return nil, nil
	}
	claims, err := cluster.Claims(a.deps.Conn)
	if err != nil {
		return nil, err
	}
	return expand.New(expand.Deps{
		Known: func(pod *v1.Pod, claim string) *v1.PersistentVolumeClaim {
			if !source.Bound(pod) {
				return nil
			}
			return a.podObjects.api.Claim(pod, claim)
		},
		Claim: claims.Get,
		Patch: func(ctx context.Context, namespace, name string, patch []byte) (*v1.PersistentVolumeClaim, error) {
			return claims.Patch(ctx, namespace, name, patch, "status")
		},
		Learn: a.podObjects.api.Learn, Events: a.events, Logger: a.log,
	}), nil
}

// grows says whether a storage driver has volumes grow on this node.
func (a *Agent) grows(driver string) bool {
	d, err := a.drivers.Get(driver)
	return err == nil && d.Expands
}

// watchPlugins has drivers registered that put a socket into the kubelet's directory for that.
func (a *Agent) watchPlugins(ctx context.Context) error {
	return plugins.New(plugins.Config{
		Dir: filepath.Join(a.cfg.RootDir, "plugins_registry"), Handlers: map[string]plugins.Handler{registerapi.CSIPlugin: a.drivers}, Logger: a.log,
	}).Run(ctx)
}

// csiDeps returns what volumes of CSI drivers need of the agent.
func (a *Agent) csiDeps() csi.Deps {
	a.drivers = csi.NewDrivers(a.driversChanged, a.metrics.CSI, a.log)
	o := csiObjects{a.podObjects}
	return csi.Deps{
		Drivers: a.drivers, Object: o.driver, Secret: o.secret, Token: o.token, Attachment: o.attachment, Attached: a.attachment, Changed: a.nodeChanged,
	}
}

// driversChanged wakes the pods that may wait for a driver, and has the cluster know.
func (a *Agent) driversChanged() {
	a.wakeCSI()
	if a.csinode != nil {
		a.csinode.Changed()
	}
}

// wakeCSI wakes the pods that have, or may have, volumes of CSI drivers.
func (a *Agent) wakeCSI() {
	for uid, e := range a.workers.List() {
		if slices.ContainsFunc(e.Pod.Spec.Volumes, func(v v1.Volume) bool { return v.CSI != nil || v.Ephemeral != nil || v.PersistentVolumeClaim != nil }) {
			a.workers.Wake(uid)
		}
	}
}

// attachment returns nil once the cluster has a volume attached to this node, and has heard that it is in use here, so that it stays attached.
func (a *Agent) attachment(pod *v1.Pod, volume v1.UniqueVolumeName) error {
	if !source.Bound(pod) {
		return nil
	}
	if a.registry == nil {
		return errAlone
	}
	node := a.registry.Node()
	if node == nil {
		return fmt.Errorf("%w: this node is not known to the API server yet", volumes.ErrUnderWay)
	}
	attached := slices.ContainsFunc(node.Status.VolumesAttached, func(have v1.AttachedVolume) bool { return have.Name == volume })
	if !attached || !slices.Contains(node.Status.VolumesInUse, volume) {
		return fmt.Errorf("%w: volume %s is not attached to this node yet (see kubectl get volumeattachments)", volumes.ErrUnderWay, volume)
	}
	return nil
}

// attachedChanged wakes the pods that may wait for a volume to be attached, when a Node object says something new of those.
func (a *Agent) attachedChanged(n *v1.Node) {
	now := fmt.Sprint(n.Status.VolumesInUse, n.Status.VolumesAttached)
	if before := a.attached.Swap(&now); before != nil && *before == now {
		return
	}
	for _, uid := range a.volumes.CSI().Users() {
		a.workers.Wake(uid)
	}
}

// csiObjects are the objects that CSI drivers need, for each pod of where it came from.
type csiObjects struct{ podObjects }

// driver returns the CSIDriver object of a pod's driver.
func (o csiObjects) driver(pod *v1.Pod, name string) (*storagev1.CSIDriver, error) {
	if !source.Bound(pod) {
		local := o.local.CSIDriver(name)
		if local == nil {
			return csi.Unknown(name), nil
		}
		out := local.DeepCopy()
		out.Spec.AttachRequired = new(bool) // by nobody
		return out, nil
	}
	if o.api == nil {
		return nil, errAlone
	}
	out, err := o.api.CSIDriver(name)
	return out, toldOf(err)
}

// secret returns a Secret that a volume names. Those that the pod names are watched, the others are asked for.
func (o csiObjects) secret(ctx context.Context, pod *v1.Pod, ref *v1.SecretReference) (map[string][]byte, error) {
	var s *v1.Secret
	switch {
	case !source.Bound(pod):
		s, _ = o.local.Secret(ref.Namespace, ref.Name)
	case o.api == nil:
		return nil, errAlone
	default:
		var err error
		if s, err = o.watchedSecret(pod, ref); s == nil {
			s, err = o.api.Fetch(ctx, ref.Namespace, ref.Name)
		}
		if err != nil {
			return nil, err
		}
	}
	if s == nil {
		return nil, fmt.Errorf("secret %q not found", ref.Name)
	}
	return s.Data, nil
}

// watchedSecret returns a Secret of the pod's own, nil where it has none of that name.
func (o csiObjects) watchedSecret(pod *v1.Pod, ref *v1.SecretReference) (*v1.Secret, error) {
	if ref.Namespace != pod.Namespace {
		return nil, nil
	}
	s, err := o.api.Secret(pod, ref.Name)
	if err != nil {
		return nil, nil //nolint:nilerr // it is asked for
	}
	return s, nil
}

// token returns a token of the pod's service account.
func (o csiObjects) token(pod *v1.Pod, ask storagev1.TokenRequest) (string, time.Time, error) {
	if !source.Bound(pod) || o.tokens == nil {
		return "", time.Time{}, errors.New("pods of manifests have no service account")
	}
	seconds := int64(0)
	if ask.ExpirationSeconds != nil {
		seconds = *ask.ExpirationSeconds
	}
	text, expires, err := o.tokens.Ask(pod, ask.Audience, seconds)
	if errors.Is(err, tokens.ErrPending) {
		err = fmt.Errorf("%w: token: %w", volumes.ErrUnderWay, err)
	}
	return text, expires, err
}

// attachment returns what the attacher of a volume has to tell its driver.
func (o csiObjects) attachment(ctx context.Context, pod *v1.Pod, name string) (map[string]string, error) {
	if !source.Bound(pod) {
		return nil, nil
	}
	if o.api == nil {
		return nil, errAlone
	}
	return o.api.Attachment(ctx, name)
}

// newCSINode returns what keeps the node's CSINode object.
func (a *Agent) newCSINode() (*csinode.Keeper, error) {
	nodes, err := cluster.Nodes(a.deps.Conn)
	if err != nil {
		return nil, err
	}
	objects, err := cluster.CSINodes(a.deps.Conn)
	if err != nil {
		return nil, err
	}
	return csinode.New(csinode.Deps{
		Nodes: nodes, Objects: objects, Logger: a.log,
		Node:    func() *v1.Node { return a.registry.Node() },
		Drivers: func() ([]csi.Driver, []string) { return a.drivers.List() },
	}), nil
}

// keepCSINode keeps the node's CSINode object.
func (a *Agent) keepCSINode(ctx context.Context) error { return a.csinode.Run(ctx) }
