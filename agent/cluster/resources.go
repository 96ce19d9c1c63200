package cluster

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/node/dra"
)

// ResourceAPI returns what package dra reads of the API server; nil on a node without a cluster.
func ResourceAPI(connection *Connection) dra.API {
	if connection == nil {
		return nil
	}
	return resources{connection.Conn}
}

// resources reads the objects of dynamic resource allocation.
type resources struct{ conn *kube.Conn }

// ResourceClaim reads a ResourceClaim.
func (r resources) ResourceClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	claims, err := kube.ResourceClaims(r.conn)
	if err != nil {
		return nil, err
	}
	return claims.Get(ctx, namespace, name)
}
