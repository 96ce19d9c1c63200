package configs

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"
)

// TestSamplesLoad checks that every sample is valid and gives no warning.
func TestSamplesLoad(t *testing.T) {
	files, err := filepath.Glob("samples/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("samples %q, %v", files, err)
	}
	for _, file := range files {
		_, warnings, err := Load(Options{File: file, DropInDir: t.TempDir()})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: error %v, warnings %v", file, err, warnings)
		}
	}
}

// TestSamplesShowTheDefaults checks that the commented samples have the defaults that they claim,
// and that the sample of BerthConfiguration has every field.
func TestSamplesShowTheDefaults(t *testing.T) {
	want, _, err := Load(Options{DropInDir: t.TempDir(), File: emptyFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"samples/config.yaml", "samples/berth.yaml"} {
		got, _, err := Load(Options{File: file, DropInDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if file == "samples/berth.yaml" {
			want.Berth.MaxParallelPodStarts = defaultParallelPodStarts(2)
		} else {
			want.Berth.MaxParallelPodStarts = defaultParallelPodStarts(runtime.NumCPU())
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
	data, err := os.ReadFile("samples/berth.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var shown map[string]any
	if err := yaml.Unmarshal(data, &shown); err != nil {
		t.Fatal(err)
	}
	full := want.Berth
	sameKeys(t, "", asJSON(full), shown)
}

func emptyFile(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "empty.yaml")
	write(t, file, "# nothing\n")
	return file
}

func sameKeys(t *testing.T, path string, want, got map[string]any) {
	for name, value := range want {
		shown, ok := got[name]
		if !ok {
			t.Errorf("samples/berth.yaml does not show %s%s", path, name)
		}
		if object, isObject := value.(map[string]any); isObject && ok {
			sameKeys(t, path+name+".", object, shown.(map[string]any))
		}
	}
}
