package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berthd/berth/configs"
)

// The password of a server of manifests is not shown to whoever may read the configuration, and
// stays in the config.
func TestConfigzMasksHeaders(t *testing.T) {
	cfg := &configs.Config{}
	cfg.Kubelet.StaticPodURLHeader = map[string][]string{
		"Authorization": {"Bearer hunter2", "hunter3"}, "X-Node": {"a"},
	}
	cfg.Kubelet.MaxPods = 7
	cfg.Kubelet.StaticPodURL = "https://me:hunter4@host/pods"
	text, err := json.Marshal(configzOf(cfg))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"staticPodURLHeader":{"Authorization":["\u003cmasked\u003e"],"X-Node":["\u003cmasked\u003e"]}`, `"maxPods":7`,
		`"staticPodURL":"https://me:xxxxx@host/pods"`, `"berth":{`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "hunter") {
		t.Errorf("a header is told:\n%s", text)
	}
	if cfg.Kubelet.StaticPodURLHeader["Authorization"][0] != "Bearer hunter2" ||
		!strings.Contains(cfg.Kubelet.StaticPodURL, "hunter4") {
		t.Error("the config itself was changed")
	}
}
