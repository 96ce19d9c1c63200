package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeAnswers checks whether the runtime answers, is ready, and has the config that pods need.
func runtimeAnswers(ctx context.Context, h *Host) []Finding {
	endpoint := h.Endpoint
	v, err := h.Runtime.Version(ctx)
	if errdefs.IsNotImplemented(err) {
		return []Finding{failure(`set runtime: native or auto in the BerthConfiguration, or take "cri" out of `+
			`disabled_plugins in /etc/containerd/config.toml (Docker's package disables it), then systemctl restart `+
			`containerd`,
			"the runtime at %s has no CRI", endpoint)}
	}
	if denied(err) {
		return []Finding{warning(asRoot, "this user may not use the runtime at %s, and so much cannot be checked", endpoint)}
	}
	if err != nil {
		setting := "containerRuntimeEndpoint"
		if h.Native {
			setting = "containerd.address"
		}
		return []Finding{failure("systemctl enable --now containerd, or set "+setting,
			"the runtime at %s does not answer: %v", endpoint, err)}
	}
	out := []Finding{ok("%s %s answers at %s", v.RuntimeName, v.RuntimeVersion, endpoint)}
	if h.Native {
		out = []Finding{ok("pods are run natively, by %s %s at %s", v.RuntimeName, v.RuntimeVersion, endpoint)}
	}
	st, err := h.Runtime.Status(ctx, true)
	if err != nil {
		return append(out,
			warning("see the runtime's log: journalctl -u containerd", "the runtime does not say how it is: %v", err))
	}
	for _, c := range st.GetStatus().GetConditions() {
		if c.Status || saysOnlyV1(c) {
			continue
		}
		find, fix := warning, "see the runtime's log: journalctl -u containerd"
		// the CRI defines these conditions; a runtime may have others, and pods run without them
		switch c.Type {
		case runtimeapi.RuntimeReady:
			find = failure
		case runtimeapi.NetworkReady:
			find, fix = failure,
				"put a network config into "+h.cniPlaces(ctx).conf+
					" (the package brings zz-berth.conflist); the runtime takes it up by itself"
		}
		out = append(out, find(fix, "the runtime says that %s is not so: %s", c.Type, said(c)))
	}
	return append(out, configured(ctx, h, v, parse(st.GetInfo()["config"]))...)
}

// said returns what a condition says for people. Containerd's conditions may have a JSON object as
// their message, whose values are the texts.
func said(c *runtimeapi.RuntimeCondition) string {
	var texts map[string]string
	if json.Unmarshal([]byte(c.Message), &texts) == nil && len(texts) > 0 {
		return strings.Join(slices.Sorted(maps.Values(texts)), "; ")
	}
	return cmp.Or(strings.TrimSpace(c.Message), c.Reason)
}

// saysOnlyV1 reports whether containerd only warns that cgroup v1 is deprecated, which the check of
// the cgroups says.
func saysOnlyV1(c *runtimeapi.RuntimeCondition) bool {
	var texts map[string]string
	return json.Unmarshal([]byte(c.Message), &texts) == nil && len(texts) == 1 &&
		texts["io.containerd.deprecation/cgroup-v1"] != ""
}

// asRoot is the advice for what only root may see.
const asRoot = "run the check as root: sudo berth doctor"

// denied reports whether an error says that this user may not use a socket. An error that came
// through gRPC has only the text.
func denied(err error) bool {
	return err != nil && (errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), unix.EACCES.Error()))
}

// runtimeConfig is the part of containerd's config that is checked. The names are those of 1.x and
// 2.x.
type runtimeConfig struct {
	SandboxImage string `json:"sandboxImage"`
	PinnedImages struct {
		Sandbox string `json:"sandbox"`
	} `json:"pinnedImages"`
	// StatsCollectPeriod is in seconds in 1.x, and a duration in 2.x.
	StatsCollectPeriod any `json:"statsCollectPeriod"`
	known              bool
}

func parse(text string) runtimeConfig {
	var c runtimeConfig
	c.known = json.Unmarshal([]byte(text), &c) == nil
	return c
}

// configured checks the runtime's config, if the runtime reports it.
func configured(ctx context.Context, h *Host, v *runtimeapi.VersionResponse, c runtimeConfig) []Finding {
	if v.RuntimeName != "containerd" || !c.known {
		return nil
	}
	var out []Finding
	image := c.SandboxImage
	if image == "" {
		image = c.PinnedImages.Sandbox
	}
	if image != "" && !h.hasImage(ctx, image) {
		out = append(out,
			hint(`set it to the image that the package brings ("make pause" makes it): sandbox_image = `+
				`"berth.local/pause:v1" (containerd 1.x), or sandbox under pinned_images (2.x), in /etc/containerd/config.toml`,
				"the sandbox image %s is not here: the first pod pulls it, and without its registry no pod starts",
				image))
	}
	if !less(v.RuntimeVersion, "2.3") {
		if period, _ := c.StatsCollectPeriod.(string); period == "" || period == "1s" {
			out = append(out,
				hint(`stats_collect_period = "24h" in /etc/containerd/config.toml, unless something else asks `+
					`containerd for statistics`,
					"containerd looks at every container each second: about 1 %% of a core on an idle node"))
		}
	}
	return out
}

// hasImage reports whether the runtime has an image. If the runtime cannot say, it returns true.
func (h *Host) hasImage(ctx context.Context, name string) bool {
	images, err := h.Runtime.ListImages(ctx)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(images, func(i *runtimeapi.Image) bool {
		return slices.Contains(i.RepoTags, name) || i.Id == name
	})
}
