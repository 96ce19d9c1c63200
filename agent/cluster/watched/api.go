package watched

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/berthd/berth/agent/source/objects"
)

// requestTimeout limits a request that is not a watch. client-go's reflectors and the kubelet's
// clients wait as long for a silent server.
const requestTimeout = 30 * time.Second

// watchTimeout is the shortest time, and half the longest, that a watch asks the server for. The
// server ends every watch after an hour anyway.
const watchTimeout = 30 * time.Minute

// api is what a [Watcher] asks the API server; tests have fakes.
type api interface {
	// list returns the objects of a key, and the resource version from which they can be watched.
	list(ctx context.Context, key objects.Key) ([]objects.Object, string, error)
	// watch opens a watch of a key's objects after a resource version.
	watch(ctx context.Context, key objects.Key, version string) (watch.Interface, error)
	// get returns one object.
	get(ctx context.Context, key objects.Key) (objects.Object, error)
}

// restAPI is the API server behind clients of its groups.
type restAPI struct {
	core, node, storage, certificates rest.Interface
}

func (a restAPI) list(ctx context.Context, key objects.Key) ([]objects.Object, string, error) {
	ctx, cancel := context.WithTimeout(silent(ctx), requestTimeout)
	defer cancel()
	into := listOf(key.Kind)
	if err := a.request(key).Do(ctx).Into(into); err != nil {
		return nil, "", err
	}
	var out []objects.Object
	err := meta.EachListItem(into, func(o runtime.Object) error {
		object, ok := o.(objects.Object)
		if !ok {
			return fmt.Errorf("the server sent a %T in a list of %s", o, resource(key.Kind))
		}
		out = append(out, object)
		return nil
	})
	list, ok := into.(interface{ GetResourceVersion() string })
	if !ok || err != nil {
		return nil, "", err
	}
	return out, list.GetResourceVersion(), nil
}

func (a restAPI) watch(ctx context.Context, key objects.Key, version string) (watch.Interface, error) {
	// random, so that not all watches end at the same moment
	seconds := watchTimeout.Seconds() * (1 + rand.Float64())
	return a.request(key).Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", version).
		Param("timeoutSeconds", strconv.Itoa(int(seconds))).Watch(silent(ctx))
}

func (a restAPI) get(ctx context.Context, key objects.Key) (objects.Object, error) {
	ctx, cancel := context.WithTimeout(silent(ctx), requestTimeout)
	defer cancel()
	var into objects.Object
	switch key.Kind {
	case objects.KindClaim:
		into = &v1.PersistentVolumeClaim{}
	case objects.KindPersistentVolume:
		into = &v1.PersistentVolume{}
	case objects.KindSecret:
		into = &v1.Secret{}
	case kindAttachment:
		into = &storagev1.VolumeAttachment{}
	default:
		return nil, fmt.Errorf("objects of kind %s are not fetched one by one", key.Kind)
	}
	err := a.client(key.Kind).Get().NamespaceIfScoped(key.Namespace, key.Namespace != "").Resource(resource(key.Kind)).
		Name(key.Name).Do(ctx).Into(into)
	return into, err
}

// silent keeps the client library from logging bodies, which it does at high verbosity. Some of
// them are Secrets.
func silent(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// request begins a request for the objects of a key: one object by its name, which is all that a
// node may see, or all of the kind.
func (a restAPI) request(key objects.Key) *rest.Request {
	request := a.client(key.Kind).Get().NamespaceIfScoped(key.Namespace, key.Namespace != "").
		Resource(resource(key.Kind))
	if key.Name != "" {
		request = request.Param("fieldSelector", "metadata.name="+key.Name)
	}
	return request
}

// client returns the client of a kind's API group.
func (a restAPI) client(kind string) rest.Interface {
	switch kind {
	case objects.KindRuntimeClass:
		return a.node
	case objects.KindCSIDriver, kindAttachment:
		return a.storage
	case KindTrustBundle:
		return a.certificates
	}
	return a.core
}

// listOf returns an empty list for a kind.
func listOf(kind string) runtime.Object {
	switch kind {
	case objects.KindConfigMap:
		return &v1.ConfigMapList{}
	case objects.KindSecret:
		return &v1.SecretList{}
	case objects.KindRuntimeClass:
		return &nodev1.RuntimeClassList{}
	case objects.KindCSIDriver:
		return &storagev1.CSIDriverList{}
	case KindTrustBundle:
		return &certificatesv1beta1.ClusterTrustBundleList{}
	default:
		return &v1.ServiceList{}
	}
}
