package node

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/configs"
)

func TestOSImage(t *testing.T) {
	for text, want := range map[string]string{
		"NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n": "Debian GNU/Linux 12 (bookworm)",
		"PRETTY_NAME='Alpine'": "Alpine", "PRETTY_NAME=Plain\n": "Plain", "NAME=x": "Unknown", "": "Unknown",
	} {
		if got := osImage(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestSwapTotal(t *testing.T) {
	for text, want := range map[string]int64{
		"SwapTotal:  1024 kB\n": 1 << 20,
		"SwapTotal: 0 kB\n":     0,
		"SwapTotal: x kB":       0,
		"":                      0,
	} {
		if got := swapTotal(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestFirstLine(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, full := write("empty", "\n"), write("full", " id \x00\nmore\n")
	if got := firstLine(filepath.Join(dir, "nothing"), empty, full); got != "id" {
		t.Errorf("%q", got)
	}
	if got := firstLine(empty); got != "" {
		t.Errorf("%q", got)
	}
}

func TestInfo(t *testing.T) {
	info := (&Node{}).Info("containerd://2.4.2")
	if info.ContainerRuntimeVersion != "containerd://2.4.2" || info.KernelVersion == "" || info.BootID == "" ||
		info.OperatingSystem != "linux" {
		t.Errorf("%+v", info)
	}
	// kubectl and the control plane parse it as a version of Kubernetes.
	if !regexp.MustCompile(`^v1\.\d+\.\d+\+berth$`).MatchString(info.KubeletVersion) {
		t.Errorf("version %q", info.KubeletVersion)
	}
}

func TestLabelsOfTheAPIServer(t *testing.T) {
	cfg := &configs.Config{}
	cfg.NodeLabels = map[string]string{"disk": "ssd"}
	n := &Node{Name: "n", cfg: cfg}
	if l := n.Admission().Labels; l["disk"] != "ssd" {
		t.Errorf("%v", l)
	}
	if taints := n.Admission().Taints; len(taints) != 0 {
		t.Errorf("%v", taints)
	}
	n.SetObject(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "a", v1.LabelHostname: "liar"}},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "full"}}},
	})
	if taints := n.Admission().Taints; len(taints) != 1 || taints[0].Key != "full" {
		t.Errorf("%v", taints)
	}
	if l := n.Admission().Labels; l["disk"] != "" || l["zone"] != "a" || l[v1.LabelHostname] != "n" {
		t.Errorf("%v", l)
	}
}
