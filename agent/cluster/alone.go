package cluster

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster/certs"
	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/volumes/expand"
	"github.com/berthd/berth/internal/lifecycle"
)

// errAlone is the error for a pod of an API server on a node that has left the cluster: the pod has
// none of its objects.
var errAlone = errors.New("this node has no connection to the API server that the pod came from")

// Alone is the [Side] of a node without a cluster: the node reports to nobody.
type Alone struct{}

// Joined is false.
func (Alone) Joined() bool { return false }

// Lease is zero: there is no cluster.
func (Alone) Lease() Lease { return Lease{} }

// Mirrored returns nil: there is no mirror pod.
func (Alone) Mirrored(*v1.Pod) *v1.PodStatus { return nil }

// Sources returns no source.
func (Alone) Sources() []source.Source { return nil }

// First returns no loop.
func (Alone) First() []lifecycle.Loop { return nil }

// Loops has none.
func (Alone) Loops() []lifecycle.Loop { return nil }

// Reported returns at once: there is no API server.
func (Alone) Reported(context.Context) {}

// Flush does nothing: there is no API server.
func (Alone) Flush() {}

// Reviewer returns nil: nobody can be asked.
func (Alone) Reviewer() *kube.Conn { return nil }

// Serving returns nil: no cluster signs a certificate.
func (Alone) Serving() certs.Serving { return nil }

// NoObjects stands for the API server's objects on a node without a cluster: the node can know
// none.
type NoObjects struct{}

// ConfigMap fails.
func (NoObjects) ConfigMap(*v1.Pod, string) (*v1.ConfigMap, error) { return nil, errAlone }

// Secret fails.
func (NoObjects) Secret(*v1.Pod, string) (*v1.Secret, error) { return nil, errAlone }

// RuntimeClass returns nil: the node knows no RuntimeClass of a cluster.
func (NoObjects) RuntimeClass(string) *nodev1.RuntimeClass { return nil }

// Services returns no Service, and says that all Services have been read.
func (NoObjects) Services(*v1.Pod) ([]*v1.Service, bool) { return nil, true }

// ServiceAccount fails.
func (NoObjects) ServiceAccount(context.Context, string, string) (*v1.ServiceAccount, error) {
	return nil, errAlone
}

// PullToken fails.
func (NoObjects) PullToken(context.Context, *v1.Pod, string) (string, error) { return "", errAlone }

// Token fails.
func (NoObjects) Token(*v1.Pod, *v1.ServiceAccountTokenProjection) ([]byte, error) {
	return nil, errAlone
}

// Resolve fails.
func (NoObjects) Resolve(*v1.Pod, string) (*v1.PersistentVolume, error) { return nil, errAlone }

// CSIDriver fails.
func (NoObjects) CSIDriver(string) (*storagev1.CSIDriver, error) { return nil, errAlone }

// VolumeSecret fails.
func (NoObjects) VolumeSecret(context.Context, *v1.Pod, *v1.SecretReference) (*v1.Secret, error) {
	return nil, errAlone
}

// TrustBundle fails.
func (NoObjects) TrustBundle(*v1.Pod, *v1.ClusterTrustBundleProjection) ([]byte, error) {
	return nil, errAlone
}

// Certificate fails.
func (NoObjects) Certificate(*v1.Pod, string, int) (key, chain []byte, err error) {
	return nil, nil, errAlone
}

// CountCertificates does nothing: there are none.
func (NoObjects) CountCertificates(func(signer, state string, n int)) {}

// DriverToken fails.
func (NoObjects) DriverToken(*v1.Pod, storagev1.TokenRequest) (string, time.Time, error) {
	return "", time.Time{}, errAlone
}

// Attached fails.
func (NoObjects) Attached(v1.UniqueVolumeName) error { return errAlone }

// Attachment fails.
func (NoObjects) Attachment(context.Context, string) (map[string]string, error) { return nil, errAlone }

// Use returns no object to wait for.
func (NoObjects) Use(*v1.Pod) (string, time.Time) { return "", time.Time{} }

// UseServices does nothing: there is nothing to watch.
func (NoObjects) UseServices(*v1.Pod) {}

// Drop does nothing: there is nothing to drop.
func (NoObjects) Drop(types.UID) {}

// Growth returns nil: no claim of a cluster grows.
func (NoObjects) Growth() *expand.Expander { return nil }

// SetNode ignores the Node.
func (NoObjects) SetNode(*v1.Node) {}

// Loops has none.
func (NoObjects) Loops() []lifecycle.Loop { return nil }
