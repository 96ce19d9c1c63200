package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// RequestTimeout is the timeout of a request whose context has no deadline. An API server gives a
// request as long (--request-timeout), so a late answer is still received.
const RequestTimeout = time.Minute

// Object is a pointer to an API type.
type Object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// Client reads and writes the objects of one kind. Make it with [NewClient], or with one of the
// functions for a kind.
type Client[T any, P Object[T]] struct {
	rest     rest.Interface
	params   runtime.ParameterCodec
	resource string
	ready    *Ready
}

// NewClient returns a client of the resource (its plural, as in URLs) of an API group.
func NewClient[T any, P Object[T]](c *Conn, gv schema.GroupVersion, resource string) (*Client[T, P], error) {
	group, err := c.Group(gv)
	if err != nil {
		return nil, err
	}
	return &Client[T, P]{rest: group, params: c.params, resource: resource, ready: NewReady(group)}, nil
}

// Pods returns a client of pods.
func Pods(c *Conn) (*Client[v1.Pod, *v1.Pod], error) {
	return NewClient[v1.Pod](c, v1.SchemeGroupVersion, "pods")
}

// Nodes returns a client of nodes; their namespace is empty.
func Nodes(c *Conn) (*Client[v1.Node, *v1.Node], error) {
	return NewClient[v1.Node](c, v1.SchemeGroupVersion, "nodes")
}

// Leases returns a client of leases.
func Leases(c *Conn) (*Client[coordinationv1.Lease, *coordinationv1.Lease], error) {
	return NewClient[coordinationv1.Lease](c, coordinationv1.SchemeGroupVersion, "leases")
}

// Claims returns a client of PersistentVolumeClaims.
func Claims(c *Conn) (*Client[v1.PersistentVolumeClaim, *v1.PersistentVolumeClaim], error) {
	return NewClient[v1.PersistentVolumeClaim](c, v1.SchemeGroupVersion, "persistentvolumeclaims")
}

// CSINodes returns a client of CSINodes; their namespace is empty.
func CSINodes(c *Conn) (*Client[storagev1.CSINode, *storagev1.CSINode], error) {
	return NewClient[storagev1.CSINode](c, storagev1.SchemeGroupVersion, "csinodes")
}

// ResourceClaims returns a client of ResourceClaims.
func ResourceClaims(c *Conn) (*Client[resourcev1.ResourceClaim, *resourcev1.ResourceClaim], error) {
	return NewClient[resourcev1.ResourceClaim](c, resourcev1.SchemeGroupVersion, "resourceclaims")
}

// ResourceSlices returns a client of ResourceSlices; their namespace is empty.
func ResourceSlices(c *Conn) (*Client[resourcev1.ResourceSlice, *resourcev1.ResourceSlice], error) {
	return NewClient[resourcev1.ResourceSlice](c, resourcev1.SchemeGroupVersion, "resourceslices")
}

// CertificateRequests returns a client of PodCertificateRequests.
func CertificateRequests(
	c *Conn,
) (*Client[certificatesv1beta1.PodCertificateRequest, *certificatesv1beta1.PodCertificateRequest], error) {
	return NewClient[certificatesv1beta1.PodCertificateRequest](c, certificatesv1beta1.SchemeGroupVersion,
		"podcertificaterequests")
}

// Get reads an object. If the API server answered, the errors of all methods are those of
// apimachinery's api/errors.
func (c *Client[T, P]) Get(ctx context.Context, namespace, name string) (P, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	out := P(new(T))
	err := c.rest.Get().NamespaceIfScoped(namespace, namespace != "").Resource(c.resource).Name(name).Do(ctx).Into(out)
	return c.answer(out, err, "reading", namespace, name)
}

// Create makes an object and returns the object as the API server has it.
func (c *Client[T, P]) Create(ctx context.Context, obj P) (P, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	out, ns := P(new(T)), obj.GetNamespace()
	err := c.rest.Post().NamespaceIfScoped(ns, ns != "").Resource(c.resource).Body(obj).Do(ctx).Into(out)
	return c.answer(out, err, "creating", ns, obj.GetName())
}

// Update replaces an object.
func (c *Client[T, P]) Update(ctx context.Context, obj P) (P, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	out, ns := P(new(T)), obj.GetNamespace()
	err := c.rest.Put().NamespaceIfScoped(ns, ns != "").Resource(c.resource).Name(obj.GetName()).Body(obj).Do(ctx).
		Into(out)
	return c.answer(out, err, "updating", ns, obj.GetName())
}

// Patch sends a strategic merge patch in JSON, for the object or one of its subresources.
func (c *Client[T, P]) Patch(
	ctx context.Context, namespace, name string, patch []byte, subresources ...string,
) (P, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	out := P(new(T))
	err := c.rest.Patch(types.StrategicMergePatchType).NamespaceIfScoped(namespace, namespace != "").
		Resource(c.resource).Name(name).
		SubResource(subresources...).Body(patch).Do(ctx).Into(out)
	return c.answer(out, err, "patching", namespace, name)
}

// Delete removes an object, with the options' grace period and preconditions.
func (c *Client[T, P]) Delete(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := c.rest.Delete().NamespaceIfScoped(namespace, namespace != "").Resource(c.resource).Name(name).Body(&opts).
		Do(ctx).Error()
	_, err = c.answer(nil, err, "deleting", namespace, name)
	return err
}

// DeleteAll removes all objects that the options select; an empty namespace means all namespaces.
func (c *Client[T, P]) DeleteAll(ctx context.Context, namespace string, opts metav1.ListOptions) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := c.rest.Delete().NamespaceIfScoped(namespace, namespace != "").Resource(c.resource).
		VersionedParams(&opts, c.params).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("deleting %s: %w", c.resource, err)
	}
	return nil
}

// List reads all objects that the options select; an empty namespace means all namespaces. It also
// returns the revision of the list.
func (c *Client[T, P]) List(
	ctx context.Context, namespace string, opts metav1.ListOptions,
) (items []P, resourceVersion string, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	list, err := c.rest.Get().NamespaceIfScoped(namespace, namespace != "").Resource(c.resource).
		VersionedParams(&opts, c.params).Do(ctx).Get()
	if err != nil {
		return nil, "", fmt.Errorf("listing %s: %w", c.resource, err)
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", fmt.Errorf("listing %s: %w", c.resource, err)
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		item, ok := o.(P)
		if !ok {
			return fmt.Errorf("listing %s: the API server's list has a %T", c.resource, o)
		}
		items = append(items, item)
		return nil
	})
	return items, of.GetResourceVersion(), err
}

// Watch opens a stream of changes. The caller stops the stream.
func (c *Client[T, P]) Watch(ctx context.Context, namespace string, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	w, err := c.rest.Get().NamespaceIfScoped(namespace, namespace != "").Resource(c.resource).
		VersionedParams(&opts, c.params).Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", c.resource, err)
	}
	return w, nil
}

// watchFirst is the shortest time that a watch asks the API server for. Up to the same time is
// added at random, so that nodes do not watch anew at the same moment. An API server that is not
// asked for a time uses the same time (--min-request-timeout).
const watchFirst = 30 * time.Minute

// Follow follows the objects in a namespace (all, if empty) that match a field selector; see
// [Follow].
func (c *Client[T, P]) Follow(ctx context.Context, namespace, fieldSelector string, h Handler[P]) {
	h.Back = c.ready.Back
	Follow(ctx, Source[P]{
		Name: c.resource,
		List: func(ctx context.Context) ([]P, string, error) {
			return c.List(ctx, namespace, metav1.ListOptions{FieldSelector: fieldSelector})
		},
		Watch: func(ctx context.Context, revision string) (watch.Interface, error) {
			seconds := int64((watchFirst + rand.N(watchFirst)) / time.Second)
			return c.Watch(ctx, namespace, metav1.ListOptions{
				FieldSelector:       fieldSelector,
				ResourceVersion:     revision,
				AllowWatchBookmarks: true,
				TimeoutSeconds:      &seconds,
			})
		},
	}, h)
}

// answer returns out, or the error wrapped with the operation and the object's name.
func (c *Client[T, P]) answer(out P, err error, doing, namespace, name string) (P, error) {
	if err == nil {
		return out, nil
	}
	if namespace != "" {
		name = namespace + "/" + name
	}
	return nil, fmt.Errorf("%s %s %s: %w", doing, c.resource, name, err)
}
