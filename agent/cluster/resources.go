package cluster

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/node/dra"
)

// ResourceAPI returns the API server's objects for package dra, on the node of that name; nil on a
// node without a cluster.
func ResourceAPI(connection *Connection, node string) dra.API {
	if connection == nil {
		return nil
	}
	return resources{connection.Conn, node}
}

// resources has the objects of dynamic resource allocation.
type resources struct {
	conn *kube.Conn
	node string
}

// ResourceClaim reads a ResourceClaim.
func (r resources) ResourceClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	claims, err := kube.ResourceClaims(r.conn)
	if err != nil {
		return nil, err
	}
	return claims.Get(ctx, namespace, name)
}

// DeleteResourceSlices deletes those of the node's ResourceSlices that a selector selects. An API
// server that has no ResourceSlices at all has none of the node.
func (r resources) DeleteResourceSlices(ctx context.Context, of fields.Selector) error {
	slices, err := kube.ResourceSlices(r.conn)
	if err != nil {
		return err
	}
	selector := fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, r.node)
	if !of.Empty() {
		selector = fields.AndSelectors(selector, of)
	}
	err = slices.DeleteAll(ctx, "", metav1.ListOptions{FieldSelector: selector.String()})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
