package csi

import (
	"context"
	"fmt"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/berthd/berth/agent/node/plugins"
)

// callTimeout is how long a driver may take for one call. It is the kubelet's.
const callTimeout = 2 * time.Minute

// client is a connection to one driver, for the work on one volume.
type client struct {
	driver string
	node   csiapi.NodeClient
	conn   *grpc.ClientConn
}

// connect prepares a connection to a driver. The caller closes it.
func (d *Drivers) connect(driver Driver) (*client, error) {
	timed := func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		began := time.Now()
		err := invoke(ctx, method, req, reply, conn, opts...)
		took := time.Since(began)
		if d.calls != nil {
			d.calls(driver.Name, method, status.Code(err).String(), took)
		}
		d.log.Debug("CSI driver called", "driver", driver.Name, "method", method, "took", took, "err", err)
		return err
	}
	conn, err := plugins.Dial(driver.Endpoint, grpc.WithUnaryInterceptor(timed))
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver %s: %w", driver.Name, err)
	}
	return &client{driver: driver.Name, node: csiapi.NewNodeClient(conn), conn: conn}, nil
}

func (c *client) close() { _ = c.conn.Close() }

// capabilities are what a driver can do on the node.
type capabilities map[csiapi.NodeServiceCapability_RPC_Type]bool

func (c *client) capabilities(ctx context.Context) (capabilities, error) {
	resp, err := bounded(ctx, func(ctx context.Context) (*csiapi.NodeGetCapabilitiesResponse, error) {
		return c.node.NodeGetCapabilities(ctx, &csiapi.NodeGetCapabilitiesRequest{})
	})
	if err != nil {
		return nil, err
	}
	can := capabilities{}
	for _, one := range resp.GetCapabilities() {
		if rpc := one.GetRpc(); rpc != nil {
			can[rpc.GetType()] = true
		}
	}
	return can, nil
}

// Short names of the capabilities that matter here.
const (
	reportsStats    = csiapi.NodeServiceCapability_RPC_GET_VOLUME_STATS
	expands         = csiapi.NodeServiceCapability_RPC_EXPAND_VOLUME
	stages          = csiapi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	mountsWithGroup = csiapi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
	knowsWriters    = csiapi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
)

// bounded makes one call.
func bounded[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}
