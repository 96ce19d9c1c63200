package configs

import (
	_ "embed"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// kubeletFlags are the names of the flags of kubelet 1.36.3, as its --help lists them.
//
//go:embed testdata/kubelet-flags.txt
var kubeletFlags string

func TestEveryFlagOfTheKubeletIsTaken(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs)
	for name := range strings.FieldsSeq(kubeletFlags) {
		if name != "help" && name != "version" && fs.Lookup(name) == nil {
			t.Errorf("--%s is not known", name)
		}
	}
}

// TestEveryFlagHasAWitness checks that each flag without a field either changes the Config or gives
// a warning.
func TestEveryFlagHasAWitness(t *testing.T) {
	reaches := map[string]bool{
		"config":                                true,
		"config-dir":                            true,
		"kubeconfig":                            true,
		"bootstrap-kubeconfig":                  true,
		"root-dir":                              true,
		"cert-dir":                              true,
		"hostname-override":                     true,
		"node-ip":                               true,
		"lock-file":                             true,
		"exit-on-lock-contention":               true,
		"minimum-container-ttl-duration":        true,
		"maximum-dead-containers-per-container": true,
		"maximum-dead-containers":               true,
		"node-labels":                           true,
		"image-credential-provider-config":      true,
		"image-credential-provider-bin-dir":     true,
	}
	for _, spec := range plainFlags() {
		if _, warned := plainFlagsWithoutEffect(Flags{})[spec.name]; warned == reaches[spec.name] {
			t.Errorf("--%s must either have an effect or a warning", spec.name)
		}
	}
}

func sigsMarshal(v any) ([]byte, error) { return yaml.Marshal(v) }

// fieldExists reports whether the KubeletConfiguration type has a field with this dotted path.
func fieldExists(path string) bool {
	t := reflect.TypeFor[kubeletconfigv1beta1.KubeletConfiguration]()
	for name := range strings.SplitSeq(path, ".") {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return false
		}
		next, ok := jsonFields(t)[name]
		if !ok {
			return false
		}
		t = next
	}
	return true
}
