package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/berthd/berth/client/api"
)

// Restart restarts containers of a pod, and returns which. It returns once the agent has recorded
// the request.
func (c *Client) Restart(
	ctx context.Context, namespace, pod string, req api.RestartRequest,
) (*api.Restarted, error) {
	out := &api.Restarted{}
	return out, c.operate(ctx, namespace, pod, api.Restart, req, out)
}

// Stop begins to stop a pod, which stays stopped until [Client.Start].
func (c *Client) Stop(ctx context.Context, namespace, pod string, req api.StopRequest) error {
	return c.operate(ctx, namespace, pod, api.Stop, req, &api.Operated{})
}

// Start lets a stopped pod run again, and reports whether it was stopped.
func (c *Client) Start(ctx context.Context, namespace, pod string) (was bool, err error) {
	out := &api.Operated{}
	err = c.operate(ctx, namespace, pod, api.Start, struct{}{}, out)
	return out.Changed, err
}

func (c *Client) operate(ctx context.Context, namespace, pod, verb string, req, into any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("asking the agent to %s pod %s/%s: %w", verb, namespace, pod, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.send(ctx, http.MethodPost, endpoint(api.PathPods+"/"+namespace+"/"+pod+"/"+verb, nil), body, into)
}
