package native

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const vendorSpec = `
cdiVersion: 0.6.0
kind: vendor.example/gpu
devices:
  - name: "0"
    containerEdits:
      deviceNodes: [{path: /dev/gpu0, hostPath: /dev/null}]
      mounts: [{hostPath: /tmp, containerPath: /driver, options: [ro, bind]}]
  - name: "1"
    containerEdits: {env: ["SECOND=yes"]}
containerEdits:
  env: ["VENDOR=yes"]
`

// Devices come from a container's field and from its annotations, each once. A spec that cannot be
// read matters only to containers whose devices are missing, and these errors name it.
func TestCDI(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"vendor.yaml": vendorSpec, "broken.yaml": "kind: ["} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := &Runtime{cfg: Config{CDISpecDirs: []string{dir}}}
	device := func(name string) []*runtimeapi.CDIDevice { return []*runtimeapi.CDIDevice{{Name: name}} }
	const first, second = "vendor.example/gpu=0", "vendor.example/gpu=1"
	spec := specOf(t, r.withCDI(&runtimeapi.ContainerConfig{
		CDIDevices: device(first), Annotations: map[string]string{"cdi.k8s.io/plugin_0": first + "," + second},
	}))
	for _, want := range []string{"VENDOR=yes", "SECOND=yes"} {
		if !slices.Contains(spec.Process.Env, want) {
			t.Errorf("the environment lacks %s: %q", want, spec.Process.Env)
		}
	}
	nodes := slices.DeleteFunc(slices.Clone(spec.Linux.Devices), func(d specs.LinuxDevice) bool {
		return d.Path != "/dev/gpu0" || d.Major != 1 || d.Minor != 3
	})
	mounts := slices.DeleteFunc(slices.Clone(spec.Mounts), func(m specs.Mount) bool { return m.Destination != "/driver" })
	if len(nodes) != 1 || len(mounts) != 1 {
		t.Errorf("it has the device nodes %v and the mounts %v", nodes, mounts)
	}
	for name, c := range map[string]struct {
		config *runtimeapi.ContainerConfig
		want   string
	}{
		"no such device":    {&runtimeapi.ContainerConfig{CDIDevices: device("vendor.example/gpu=9")}, "broken.yaml"},
		"no name of one":    {&runtimeapi.ContainerConfig{CDIDevices: device("gpu0")}, "gpu0"},
		"no name in a note": {&runtimeapi.ContainerConfig{Annotations: map[string]string{"cdi.k8s.io/x": "gpu0"}}, "gpu0"},
	} {
		err := r.withCDI(c.config)(t.Context(), nil, nil, specOf(t))
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, c.want)
		}
	}
	if env := specOf(t, r.withCDI(&runtimeapi.ContainerConfig{})).Process.Env; slices.Contains(env, "VENDOR=yes") {
		t.Errorf("without devices the environment is %q", env)
	}
}
