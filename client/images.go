package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/berthd/berth/client/api"
)

// RemoveImage makes the agent remove one image with all of its names, and returns it. name is a
// name or an ID of the image.
func (c *Client) RemoveImage(ctx context.Context, name string) (*api.Image, error) {
	image := &api.Image{}
	u := endpoint(api.PathImages, url.Values{api.ImageName: {name}})
	if err := c.send(ctx, http.MethodDelete, u, nil, image); err != nil {
		return nil, err
	}
	return image, nil
}

// PullImage makes the agent pull an image, and returns it when it is there. It takes as long as the
// pull does.
func (c *Client) PullImage(ctx context.Context, image string) (*api.Image, error) {
	body, err := json.Marshal(api.PullRequest{Image: image})
	if err != nil {
		return nil, fmt.Errorf("asking the agent to pull %s: %w", image, err)
	}
	pulled := &api.Image{}
	if err := c.send(ctx, http.MethodPost, endpoint(api.PathImagesPull, nil), body, pulled); err != nil {
		return nil, err
	}
	return pulled, nil
}
