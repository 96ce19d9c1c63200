package configs

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestFlagzTellsNoHeaders(t *testing.T) {
	fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	AddFlags(fs)
	if err := fs.Parse([]string{
		"--manifest-url-header=Authorization:hunter2", "--manifest-url-header=X:hunter3",
		"--manifest-url=http://me:hunter4@x/", "--max-pods=7", "--node_ip=192.0.2.1",
	}); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := Load(Options{File: "testdata/empty.yaml", Flags: fs})
	if err != nil {
		t.Fatal(err)
	}
	got := cfg.Flagz()
	for name, want := range map[string]string{
		"manifest-url-header": "CLASSIFIED",
		"manifest-url":        "http://me:xxxxx@x/",
		"max-pods":            "7",
		"node-ip":             "192.0.2.1",
		"root-dir":            DefaultRootDir,
		"kubeconfig":          "",
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("--%s is %q (%t), want %q", name, value, ok, want)
		}
	}
}
