package steps

import (
	"context"

	"github.com/berthd/berth/agent/images"
)

// Images has the images of the containers that are to start.
type Images struct {
	Manager *images.Manager
}

// Name is "images".
func (Images) Name() string { return "images" }

// Ensure asks for the image of each container to be started now. A missing image is pulled beside
// the worker. Its container waits, and the others go on.
func (i Images) Ensure(ctx context.Context, p *Sync) (Outcome, error) {
	var out Outcome
	p.Images = make(map[string]images.Result, len(p.Actions.Start))
	for _, s := range p.Actions.Start {
		res := i.Manager.Ensure(ctx, images.Request{
			Pod:       p.Pod,
			Container: s.Container.Name,
			Image:     s.Container.Image,
			Policy:    s.Container.ImagePullPolicy,
			Attempt:   s.Attempt,
			Sandbox:   p.SandboxConfig,
		})
		p.Images[s.Container.Name] = res
		if res.Ready {
			continue
		}
		p.wait(s.Container.Name, res.Reason, res.Message)
		out.Waiting = s.Container.Name + ": " + res.Reason + ": " + res.Message
		out.RetryAt = Earlier(out.RetryAt, res.RetryAt)
	}
	return out, nil
}

// Remove withdraws the pod from pulls under way. A pull that nobody waits for any more is ended.
func (i Images) Remove(_ context.Context, p *Sync) (Outcome, error) {
	i.Manager.Forget(p.Pod.UID)
	return Outcome{}, nil
}
