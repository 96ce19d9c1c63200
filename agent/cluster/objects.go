package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/cluster/podcerts"
	"github.com/berthd/berth/agent/cluster/tokens"
	"github.com/berthd/berth/agent/cluster/watched"
	"github.com/berthd/berth/agent/images/credentials"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/pod/origin"
	"github.com/berthd/berth/agent/telemetry/events"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/agent/volumes/expand"
	"github.com/berthd/berth/internal/lifecycle"
	"github.com/berthd/berth/internal/pods"
)

// Objects are the API server's objects that pods use: [*Watched], or [NoObjects].
type Objects interface {
	origin.API
	credentials.Accounts
	// Growth returns the expander, which lets volumes of the cluster's claims grow; nil without a
	// cluster.
	Growth() *expand.Expander
	// SetNode sets the Node object that the API server has of this node.
	SetNode(n *v1.Node)
	// CountCertificates calls add with the number of pods' certificates of each signer and state.
	CountCertificates(add func(signer, state string, n int))
	// Loops returns the loops that keep the objects up to date.
	Loops() []lifecycle.Loop
}

// ObjectsDeps are what the objects work with.
type ObjectsDeps struct {
	Node    *node.Node
	Drivers *csi.Drivers
	Events  *events.Recorder
	// Wake wakes the worker of a pod that waits for an object.
	Wake func(uid types.UID)
	// TrustBundles says that pods may have ClusterTrustBundles.
	TrustBundles bool
	// Certificates says that signers issue certificates for pods. NodeName is this node's name.
	Certificates bool
	NodeName     string
	Logger       *slog.Logger
}

// OpenObjects returns the API server's objects that pods use; connection is nil on a node without a
// cluster.
func OpenObjects(connection *Connection, deps ObjectsDeps) (Objects, error) {
	if connection == nil {
		return NoObjects{}, nil
	}
	conn := connection.Conn
	core, err := conn.Group(v1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	classes, err := conn.Group(nodev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	storage, err := conn.Group(storagev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	claims, err := kube.Claims(conn)
	if err != nil {
		return nil, err
	}
	var certificates rest.Interface
	if deps.TrustBundles {
		if certificates, err = conn.Group(certificatesv1beta1.SchemeGroupVersion); err != nil {
			return nil, err
		}
	}
	ready := kube.NewReady(core).After
	o := &Watched{
		watcher: watched.New(watched.Deps{
			Core: core, Node: classes, Storage: storage, Certificates: certificates, Ready: ready, Wake: deps.Wake,
			Logger:     deps.Logger,
			Grows:      func(driver string) bool { d, err := deps.Drivers.Get(driver); return err == nil && d.Expands },
			NodeLabels: func() map[string]string { return deps.Node.Admission().Labels },
		}),
		tokens: tokens.New(tokens.Deps{Core: core, Ready: ready, Wake: deps.Wake, Logger: deps.Logger}),
	}
	if deps.Certificates {
		requests, err := kube.CertificateRequests(conn)
		if err != nil {
			return nil, err
		}
		o.certificates = podcerts.New(podcerts.Deps{
			Requests: requests, NodeName: deps.NodeName, NodeUID: o.nodeUID, Account: o.tokens.Account, Ready: ready,
			Wake: deps.Wake, Event: deps.Events.Pod, Logger: deps.Logger,
		})
	}
	o.growth = expand.New(expand.Deps{
		Known: o.knownClaim, Claim: claims.Get, Learn: o.watcher.Learn, Events: deps.Events, Logger: deps.Logger,
		Patch: func(ctx context.Context, namespace, name string, patch []byte) (*v1.PersistentVolumeClaim, error) {
			return claims.Patch(ctx, namespace, name, patch, "status")
		},
	})
	return o, nil
}

// Watched has the API server's objects that pods use. It watches each object.
type Watched struct {
	watcher *watched.Watcher
	tokens  *tokens.Manager
	growth  *expand.Expander
	// certificates is nil if pods get none.
	certificates *podcerts.Manager
	// node is the last Node object that was set; nil before the first.
	node atomic.Pointer[v1.Node]
}

// ConfigMap returns a pod's ConfigMap, nil if there is none. The error says why it cannot be known
// now.
func (o *Watched) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	cm, err := o.watcher.ConfigMap(pod, name)
	return cm, known(err)
}

// Secret is ConfigMap for Secrets.
func (o *Watched) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	s, err := o.watcher.Secret(pod, name)
	return s, known(err)
}

// known turns an error about an object of the API server into an error that the callers know. If
// there is no such object, known returns nil.
func known(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case errors.Is(err, watched.ErrPending):
		return fmt.Errorf("%w: %w", volumes.ErrUnderWay, err)
	}
	return err
}

// RuntimeClass returns a RuntimeClass, nil if there is none.
func (o *Watched) RuntimeClass(name string) *nodev1.RuntimeClass { return o.watcher.RuntimeClass(name) }

// Services returns the Services of a pod's environment, and whether they have been read.
func (o *Watched) Services(pod *v1.Pod) (services []*v1.Service, read bool) {
	return o.watcher.Services(pod)
}

// Token returns the content of a service account token's file.
func (o *Watched) Token(pod *v1.Pod, p *v1.ServiceAccountTokenProjection) ([]byte, error) {
	data, err := o.tokens.Token(pod, p)
	return data, pendingToken(err)
}

// TrustBundle returns the certificates that a pod's projection names.
func (o *Watched) TrustBundle(pod *v1.Pod, p *v1.ClusterTrustBundleProjection) ([]byte, error) {
	data, err := o.watcher.TrustBundle(pod, p)
	return data, known(err)
}

// Certificate returns the key and the certificate chain of a source of a pod's volume.
func (o *Watched) Certificate(pod *v1.Pod, volume string, source int) (key, chain []byte, err error) {
	key, chain, err = o.certificates.Certificate(pod, volume, source)
	if errors.Is(err, podcerts.ErrPending) {
		err = fmt.Errorf("%w: %w", volumes.ErrUnderWay, err)
	}
	return key, chain, err
}

// CountCertificates calls add with the number of pods' certificates of each signer and state.
func (o *Watched) CountCertificates(add func(signer, state string, n int)) {
	if o.certificates != nil {
		o.certificates.Count(add)
	}
}

// nodeUID returns the UID of this node's Node object; empty if the API server has none.
func (o *Watched) nodeUID() types.UID {
	if n := o.node.Load(); n != nil {
		return n.UID
	}
	return ""
}

// DriverToken returns a token of the pod's service account for a storage driver, and when it ends.
func (o *Watched) DriverToken(pod *v1.Pod, ask storagev1.TokenRequest) (string, time.Time, error) {
	seconds := int64(0)
	if ask.ExpirationSeconds != nil {
		seconds = *ask.ExpirationSeconds
	}
	text, expires, err := o.tokens.Ask(pod, ask.Audience, seconds)
	return text, expires, pendingToken(err)
}

// ServiceAccount asks the API server for a service account.
func (o *Watched) ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	return o.tokens.Account(ctx, namespace, name)
}

// PullToken returns a token of a pod's service account for a credential provider plugin.
func (o *Watched) PullToken(ctx context.Context, pod *v1.Pod, audience string) (string, error) {
	return o.tokens.Now(ctx, pod, audience)
}

func pendingToken(err error) error {
	if errors.Is(err, tokens.ErrPending) {
		return fmt.Errorf("%w: token: %w", volumes.ErrUnderWay, err)
	}
	return err
}

// Use starts to watch the objects that a pod needs, and returns the object for which the pod should
// wait, and the end of that wait.
func (o *Watched) Use(pod *v1.Pod) (object string, until time.Time) {
	o.watcher.Use(pod)
	o.tokens.Use(pod)
	if o.certificates != nil {
		o.certificates.Use(pod)
	}
	if object, until = o.watcher.Await(pod); object != "" {
		return object, until
	}
	if until = o.tokens.Await(pod); !until.IsZero() {
		object = "token of service account " + pod.Namespace + "/" + pod.Spec.ServiceAccountName
	}
	return object, until
}

// UseServices starts to watch the Services.
func (o *Watched) UseServices(pod *v1.Pod) { o.watcher.UseServices(pod) }

// Drop says that a pod needs its objects no more.
func (o *Watched) Drop(uid types.UID) {
	o.watcher.Drop(uid)
	o.tokens.Drop(uid)
	if o.certificates != nil {
		o.certificates.Drop(uid)
	}
}

// Resolve returns the volume that a pod's claim is bound to.
func (o *Watched) Resolve(pod *v1.Pod, claim string) (*v1.PersistentVolume, error) {
	pv, err := o.watcher.Resolve(pod, claim)
	if errors.Is(err, watched.ErrPending) {
		return nil, known(err)
	}
	return pv, err
}

// CSIDriver returns the CSIDriver object of a storage driver, nil if there is none.
func (o *Watched) CSIDriver(name string) (*storagev1.CSIDriver, error) {
	out, err := o.watcher.CSIDriver(name)
	return out, known(err)
}

// VolumeSecret returns a Secret that a volume names. The Secrets that the pod itself names are
// watched; VolumeSecret asks the API server for the others.
func (o *Watched) VolumeSecret(ctx context.Context, pod *v1.Pod, ref *v1.SecretReference) (*v1.Secret, error) {
	if ref.Namespace == pod.Namespace {
		if s, err := o.watcher.Secret(pod, ref.Name); err == nil && s != nil {
			return s, nil
		}
	}
	return o.watcher.Fetch(ctx, ref.Namespace, ref.Name)
}

// Attached returns nil once the cluster has attached a volume to this node, and knows that the
// volume is in use here, so that the volume stays attached.
func (o *Watched) Attached(volume v1.UniqueVolumeName) error {
	n := o.node.Load()
	if n == nil {
		return fmt.Errorf("%w: this node is not known to the API server yet", volumes.ErrUnderWay)
	}
	attached := slices.ContainsFunc(n.Status.VolumesAttached, func(have v1.AttachedVolume) bool {
		return have.Name == volume
	})
	if !attached || !slices.Contains(n.Status.VolumesInUse, volume) {
		return fmt.Errorf("%w: volume %s is not attached to this node yet (see kubectl get volumeattachments)",
			volumes.ErrUnderWay, volume)
	}
	return nil
}

// Attachment returns the data that the attacher of a volume has for the storage driver.
func (o *Watched) Attachment(ctx context.Context, name string) (map[string]string, error) {
	return o.watcher.Attachment(ctx, name)
}

// SetNode sets the Node object that the API server has of this node; nil if it has none.
func (o *Watched) SetNode(n *v1.Node) { o.node.Store(n) }

// Growth returns the expander, which lets volumes of the cluster's claims grow.
func (o *Watched) Growth() *expand.Expander { return o.growth }

func (o *Watched) knownClaim(pod *v1.Pod, claim string) *v1.PersistentVolumeClaim {
	if !pods.FromAPI(pod) {
		return nil
	}
	return o.watcher.Claim(pod, claim)
}

// Loops returns the loops that keep the pods' objects, tokens and certificates, in this order.
func (o *Watched) Loops() []lifecycle.Loop {
	loops := []lifecycle.Loop{{Name: "objects", Run: o.watcher.Run}, {Name: "tokens", Run: o.tokens.Run}}
	if o.certificates != nil {
		loops = append(loops, lifecycle.Loop{Name: "certificates", Run: o.certificates.Run})
	}
	return loops
}
