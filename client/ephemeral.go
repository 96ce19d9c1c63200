package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
)

// AddEphemeral adds an ephemeral container to a running pod. It returns once the agent has recorded
// the container; the pod starts it as soon as it can.
func (c *Client) AddEphemeral(ctx context.Context, namespace, pod string, container *v1.EphemeralContainer) error {
	body, err := json.Marshal(container)
	if err != nil {
		return fmt.Errorf("encoding the ephemeral container: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	u := endpoint(api.PathPods+"/"+namespace+"/"+pod+"/"+api.EphemeralContainers, nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking the agent for %s: %w", u.Path, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explain(u, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return statusError(resp)
	}
	// so that the connection can be used again
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return nil
}
