package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEachTestFile: a module's test files are found, and those of modules below it are not.
func TestEachTestFile(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{
		"go.mod", "a_test.go", "a.go", "sub/b_test.go", "sub/testdata/c_test.go", "bin/d_test.go", ".cache/e_test.go",
		"module/go.mod", "module/f_test.go", "module/sub/g_test.go",
	} {
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for module, want := range map[string][]string{
		root: {"a_test.go", "sub/b_test.go"}, filepath.Join(root, "module"): {"f_test.go", "sub/g_test.go"},
	} {
		var found []string
		if err := eachTestFile(module, func(path string, _ []byte) { found = append(found, path) }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(found)
		if !slices.Equal(found, want) {
			t.Errorf("in %s: %v, want %v", module, found, want)
		}
	}
}

// TestTheAPIServersModuleHasTests: the phases unit and cluster find what they are to run there.
func TestTheAPIServersModuleHasTests(t *testing.T) {
	found := 0
	if err := eachTestFile(filepath.Join("..", "..", apiServer), func(string, []byte) { found++ }); err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Errorf("the module %s has no tests", apiServer)
	}
}

// TestNativeTestsAreThere: the tests that also run natively have the names that select them.
func TestNativeTestsAreThere(t *testing.T) {
	var there []string
	err := eachTestFile(filepath.Join("..", "integration"), func(_ string, text []byte) {
		there = append(there, functions(text, "Test")...)
	})
	if err != nil {
		t.Fatal(err)
	}
	tests, _, _ := strings.Cut(nativeTests, "/")
	for name := range strings.SplitSeq(strings.Trim(tests, "^()$"), "|") {
		if !slices.Contains(there, name) {
			t.Errorf("there is no integration test %s", name)
		}
	}
}
