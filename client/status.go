package client

import (
	"context"

	"github.com/berthd/berth/client/api"
)

// Status returns the state of the node as a whole.
func (c *Client) Status(ctx context.Context) (*api.NodeStatus, error) {
	st := &api.NodeStatus{}
	if err := c.get(ctx, endpoint(api.PathStatus, nil), st); err != nil {
		return nil, err
	}
	return st, nil
}

// Notes returns what people must know about the node before they read about its pods. Unlike
// [Client.Status], it does not wait for the runtime's conditions.
func (c *Client) Notes(ctx context.Context) (*api.Notes, error) {
	notes := &api.Notes{}
	if err := c.get(ctx, endpoint(api.PathNotes, nil), notes); err != nil {
		return nil, err
	}
	return notes, nil
}
