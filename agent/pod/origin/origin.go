// Package origin gives each pod the objects of the place that the pod came from.
//
// Purpose: a pod of a manifest gets the objects of manifests, and a pod of the API server gets
// those of the API server. Neither ever gets the other's: a manifest on a node cannot reach what
// the API server guards. Only Services are shared. A static pod's environment has the Services of
// the API server, if they have been read.
//
// Truth owned: none; it routes. Concurrency: [Objects] is safe for concurrent use.
package origin

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/runtimeclass"
	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/agent/volumes/claims"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/internal/pods"
)

// API has the objects of the API server that its pods use. An object that does not exist is nil
// without an error; an error says why it is not known.
type API interface {
	Environment
	Storage
	// Use starts to watch the objects that a pod needs, and returns the object for which the pod
	// should wait, and the end of that wait.
	Use(pod *v1.Pod) (object string, until time.Time)
	// UseServices starts to watch the Services, for a pod that uses no other object.
	UseServices(pod *v1.Pod)
	// Drop says that a pod needs its objects no more.
	Drop(uid types.UID)
}

// Environment has the objects from which a pod's containers are made.
type Environment interface {
	ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(pod *v1.Pod, name string) (*v1.Secret, error)
	RuntimeClass(name string) *nodev1.RuntimeClass
	// Services returns the Services of a pod's environment, and whether they have been read.
	Services(pod *v1.Pod) (services []*v1.Service, read bool)
	// Token returns the content of a service account token's file.
	Token(pod *v1.Pod, projection *v1.ServiceAccountTokenProjection) ([]byte, error)
	// TrustBundle returns the certificates that a projection names, as PEM.
	TrustBundle(pod *v1.Pod, projection *v1.ClusterTrustBundleProjection) ([]byte, error)
	// Certificate returns the key and the certificate chain of a source of a pod's volume, as PEM.
	Certificate(pod *v1.Pod, volume string, source int) (key, chain []byte, err error)
}

// Storage has the objects from which a pod's volumes are made.
type Storage interface {
	// Resolve returns the volume that a pod's claim is bound to.
	Resolve(pod *v1.Pod, claim string) (*v1.PersistentVolume, error)
	// CSIDriver returns the CSIDriver object of a storage driver.
	CSIDriver(name string) (*storagev1.CSIDriver, error)
	// VolumeSecret returns a Secret that a volume of the pod names.
	VolumeSecret(ctx context.Context, pod *v1.Pod, ref *v1.SecretReference) (*v1.Secret, error)
	// DriverToken returns a token of the pod's service account for a storage driver, and when it
	// ends.
	DriverToken(pod *v1.Pod, ask storagev1.TokenRequest) (token string, expires time.Time, err error)
	// Attached returns nil once a volume is attached to this node, and the API server knows that
	// the volume is in use here.
	Attached(volume v1.UniqueVolumeName) error
	// Attachment returns the data that the attacher of a volume has for the storage driver.
	Attachment(ctx context.Context, name string) (map[string]string, error)
}

// Objects routes each question to the place that the pod came from.
type Objects struct {
	Local  *objects.Store
	Claims *claims.Binder
	API    API
}

// ConfigMap returns a pod's ConfigMap, nil if there is none. The error says why it cannot be known
// now.
func (o *Objects) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	if pods.FromAPI(pod) {
		return o.API.ConfigMap(pod, name)
	}
	cm, _ := o.Local.ConfigMap(pod.Namespace, name)
	return cm, nil
}

// Secret returns a pod's Secret, nil if there is none. The error says why it cannot be known now.
func (o *Objects) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	if pods.FromAPI(pod) {
		return o.API.Secret(pod, name)
	}
	s, _ := o.Local.Secret(pod.Namespace, name)
	return s, nil
}

// PullSecret is Secret for image pulls. A pull goes on without the Secrets that are not available.
func (o *Objects) PullSecret(pod *v1.Pod, name string) (*v1.Secret, bool) {
	s, err := o.Secret(pod, name)
	return s, err == nil && s != nil
}

// RuntimeClass returns a pod's RuntimeClass by its name, nil if there is none.
func (o *Objects) RuntimeClass(pod *v1.Pod, name string) *nodev1.RuntimeClass {
	if pods.FromAPI(pod) {
		return o.API.RuntimeClass(name)
	}
	return o.Local.RuntimeClass(name)
}

// Handler returns the name of the runtime handler that runs the pod, empty for the runtime's own
// choice.
func (o *Objects) Handler(pod *v1.Pod) (string, error) {
	name := runtimeclass.Name(pod)
	if name == "" {
		return "", nil
	}
	class := o.RuntimeClass(pod, name)
	if class == nil {
		return "", runtimeclass.NotFound(name)
	}
	return class.Handler, nil
}

// Services returns the Services of a pod's environment. A static pod gets the known Services. A pod
// of the API server must get all Services, above all the API server's own.
func (o *Objects) Services(pod *v1.Pod) ([]*v1.Service, error) {
	services, read := o.API.Services(pod)
	if !read && pods.FromAPI(pod) {
		return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
	}
	return services, nil
}

// Use starts to watch the objects of the API server that a pod needs. It returns the object for
// which the pod should wait, and the end of that wait.
func (o *Objects) Use(pod *v1.Pod) (object string, until time.Time) {
	if pods.FromAPI(pod) {
		return o.API.Use(pod)
	}
	o.API.UseServices(pod)
	return "", time.Time{}
}

// Drop says that a pod needs its objects no more.
func (o *Objects) Drop(uid types.UID) { o.API.Drop(uid) }

// Token returns the content of a service account token's file; pods of manifests have no service
// account.
func (o *Objects) Token(pod *v1.Pod, projection *v1.ServiceAccountTokenProjection) ([]byte, error) {
	if !pods.FromAPI(pod) {
		return nil, errNoServiceAccount
	}
	return o.API.Token(pod, projection)
}

// TrustBundle returns the certificates that a pod's projection names. Pods of manifests have none.
func (o *Objects) TrustBundle(pod *v1.Pod, projection *v1.ClusterTrustBundleProjection) ([]byte, error) {
	if !pods.FromAPI(pod) {
		return nil, errors.New("pods of manifests have no trust bundles")
	}
	return o.API.TrustBundle(pod, projection)
}

// Certificate returns the key and the certificate chain of a source of a pod's volume. Pods of
// manifests have none.
func (o *Objects) Certificate(pod *v1.Pod, volume string, source int) (key, chain []byte, err error) {
	if !pods.FromAPI(pod) {
		return nil, nil, errors.New("pods of manifests have no certificates")
	}
	return o.API.Certificate(pod, volume, source)
}

var errNoServiceAccount = errors.New("pods of manifests have no service account")

// Resolve returns the volume that a pod's claim is bound to.
func (o *Objects) Resolve(pod *v1.Pod, claim string) (*v1.PersistentVolume, error) {
	if pods.FromAPI(pod) {
		return o.API.Resolve(pod, claim)
	}
	return o.Claims.Resolve(pod, claim)
}

// CSI returns the functions that volumes of storage drivers call: for the driver's objects,
// Secrets, tokens and attachments. Each function asks the place that the pod came from.
func (o *Objects) CSI() csi.Deps {
	return csi.Deps{
		Object:     o.csiDriver,
		Secret:     o.volumeSecret,
		Token:      o.driverToken,
		Attachment: o.attachment,
		Attached:   o.attached,
	}
}

func (o *Objects) csiDriver(pod *v1.Pod, name string) (*storagev1.CSIDriver, error) {
	if pods.FromAPI(pod) {
		return o.API.CSIDriver(name)
	}
	local := o.Local.CSIDriver(name)
	if local == nil {
		return csi.Unknown(name), nil
	}
	out := local.DeepCopy()
	out.Spec.AttachRequired = new(bool) // nobody attaches here
	return out, nil
}

func (o *Objects) volumeSecret(ctx context.Context, pod *v1.Pod, ref *v1.SecretReference) (map[string][]byte, error) {
	var s *v1.Secret
	if pods.FromAPI(pod) {
		var err error
		if s, err = o.API.VolumeSecret(ctx, pod, ref); err != nil {
			return nil, err
		}
	} else {
		s, _ = o.Local.Secret(ref.Namespace, ref.Name)
	}
	if s == nil {
		return nil, fmt.Errorf("secret %q not found", ref.Name)
	}
	return s.Data, nil
}

func (o *Objects) driverToken(pod *v1.Pod, ask storagev1.TokenRequest) (string, time.Time, error) {
	if !pods.FromAPI(pod) {
		return "", time.Time{}, errNoServiceAccount
	}
	return o.API.DriverToken(pod, ask)
}

func (o *Objects) attached(pod *v1.Pod, volume v1.UniqueVolumeName) error {
	if !pods.FromAPI(pod) {
		return nil
	}
	return o.API.Attached(volume)
}

func (o *Objects) attachment(ctx context.Context, pod *v1.Pod, name string) (map[string]string, error) {
	if !pods.FromAPI(pod) {
		return nil, nil
	}
	return o.API.Attachment(ctx, name)
}
