package apiserver

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/controlplane"
)

// A group without a priority is not registered, and so clients would not see it.
func TestEveryGroupHasAPriority(t *testing.T) {
	all := priorities()
	core := all[schema.GroupVersion{Version: "v1"}]
	for version, served := range controlplane.DefaultAPIResourceConfigSource().GroupVersionConfigs {
		if !served {
			continue
		}
		p, ok := all[version]
		if !ok || p.Group <= 0 || p.Version <= 0 || p.Group > core.Group {
			t.Errorf("%s has the priority %+v", version, p)
		}
	}
}
