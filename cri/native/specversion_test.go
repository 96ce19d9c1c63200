package native

import (
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// A spec says an old version of the runtime-spec, which old OCI runtimes accept, unless it uses
// something newer.
func TestSpecVersion(t *testing.T) {
	with := func(m specs.Mount) oci.SpecOpts { return oci.WithMounts([]specs.Mount{m}) }
	ids := []specs.LinuxIDMapping{{Size: 1}}
	for name, c := range map[string]struct {
		option oci.SpecOpts
		want   string
	}{
		"usual":                 {with(specs.Mount{Destination: "/x", Options: []string{"rbind", "ro"}}), oldVersion},
		"mapped users":          {with(specs.Mount{Destination: "/x", UIDMappings: ids}), specs.Version},
		"recursively read-only": {with(specs.Mount{Destination: "/x", Options: []string{"rbind", "rro"}}), specs.Version},
	} {
		if got := specOf(t, c.option, withVersion).Version; got != c.want {
			t.Errorf("%s: the version is %s, want %s", name, got, c.want)
		}
	}
}
