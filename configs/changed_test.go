package configs

import (
	"fmt"
	"testing"
)

func TestChanged(t *testing.T) {
	base := func() *Config {
		c := &Config{}
		setKubeletDefaults(&c.Kubelet)
		c.Berth.setDefaults()
		return c
	}
	if got := Changed(base(), base()); len(got) != 0 {
		t.Errorf("the same config differs in %v", got)
	}
	b := base()
	b.Kubelet.MaxPods = 7
	b.Kubelet.Logging.Verbosity = 5
	b.Kubelet.AllowedUnsafeSysctls = []string{"net.*"}
	b.Berth.CNI.ConfDir = "/elsewhere"
	b.RootDir = "/data"
	want := "[--flags allowedUnsafeSysctls berth:cni.confDir logging.verbosity maxPods]"
	if got := fmt.Sprint(Changed(base(), b)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := fmt.Sprint(Changed(b, base())); got != want {
		t.Errorf("the other way round: got %s, want %s", got, want)
	}
}
