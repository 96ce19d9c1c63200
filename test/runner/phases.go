package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// tools is where "make deps" puts the linters.
	tools = ".cache/bin"
	// integrationTag marks the test files that need root and a container runtime.
	integrationTag = "integration"
	// clusterTag marks those that need a control plane, besides.
	clusterTag = "cluster"
)

// lint runs each linter as one check.
func lint(ctx context.Context, s *summary) error {
	folders, err := sourceFolders()
	if err != nil {
		return err
	}
	check := func(name string, command ...string) {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		out, err := cmd.CombinedOutput()
		// gofumpt -l prints the files that differ and ends with 0.
		if err != nil || (name == "gofumpt" && len(out) > 0) {
			s.fail(name, fmt.Sprintf("%s%v", out, err))
			return
		}
		s.pass(name)
	}
	check("gofumpt", append([]string{filepath.Join(tools, "gofumpt"), "-l"}, folders...)...)
	check("go vet", "go", "vet", "-tags", integrationTag+","+clusterTag, "./...")
	check("golangci-lint", filepath.Join(tools, "golangci-lint"), "run", "--allow-parallel-runners", "./...")
	return nil
}

// sourceFolders returns the top folders that have code.
func sourceFolders() ([]string, error) {
	entries, err := os.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list the checkout: %w", err)
	}
	var folders []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains([]string{"bin", "dist"}, e.Name()) {
			folders = append(folders, e.Name())
		}
	}
	return folders, nil
}

// unit runs the tests that need nothing but the code, with the race detector unless $RACE is off. With it the crashes are but a sample: all of them are
// played without it.
func unit(ctx context.Context, s *summary) error {
	args := []string{"-timeout", "30m"}
	if os.Getenv("RACE") == "off" {
		return goTest(ctx, s, append(args, "./...")...)
	}
	if err := goTest(ctx, s, append(args, "-race", "./...")...); err != nil {
		return err
	}
	return goTest(ctx, s, append(args, "-run", "^TestCrashes$", "./test/scenario")...)
}

// integration runs the tests that need root and a container runtime.
func integration(ctx context.Context, s *summary) error { return tagged(ctx, s, integrationTag) }

// cluster runs the tests that need a control plane.
func cluster(ctx context.Context, s *summary) error { return tagged(ctx, s, clusterTag) }

// tagged runs the packages that have tests with a build tag, one at a time: each wants the machine for itself.
func tagged(ctx context.Context, s *summary, tag string) error {
	folders := map[string]bool{}
	err := eachTestFile(func(path string, text []byte) {
		if bytes.HasPrefix(text, []byte("//go:build "+tag+"\n")) {
			folders["./"+filepath.Dir(path)] = true
		}
	})
	if err != nil || len(folders) == 0 {
		return err
	}
	args := []string{"-tags", tag, "-count", "1", "-p", "1", "-timeout", "90m"}
	for f := range folders {
		args = append(args, f)
	}
	slices.Sort(args[len(args)-len(folders):])
	return goTest(ctx, s, args...)
}

// fuzz runs each fuzz target for $FUZZTIME.
func fuzz(ctx context.Context, s *summary) error {
	duration := os.Getenv("FUZZTIME")
	if duration == "" {
		duration = "10s"
	}
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	var runs [][2]string
	err := eachTestFile(func(path string, text []byte) {
		for _, m := range target.FindAllSubmatch(text, -1) {
			runs = append(runs, [2]string{"./" + filepath.Dir(path), string(m[1])})
		}
	})
	if err != nil {
		return err
	}
	for _, r := range runs {
		if out, err := fuzzOne(ctx, r[0], r[1], duration); err != nil {
			s.fail(r[0]+"."+r[1], fmt.Sprintf("%s%v", out, err))
			continue
		}
		s.pass(r[0] + "." + r[1])
	}
	return nil
}

// fuzzTries is how often a target is run that failed because its time was over.
const fuzzTries = 5

// fuzzOne runs one target. "go test" may call the end of the time a failure (go.dev/issue/75804), which it does not say of any input: then the target is run again.
func fuzzOne(ctx context.Context, folder, target, duration string) (out []byte, err error) {
	for range fuzzTries {
		out, err = exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+target+"$", "-fuzztime", duration, folder).CombinedOutput()
		if err == nil || ctx.Err() != nil || !timeOver(out) {
			break
		}
	}
	return out, err
}

// timeOver tells whether the end of its time is all that a failed fuzz target complains of.
func timeOver(out []byte) bool {
	return bytes.Contains(out, []byte("\n    context deadline exceeded\n")) && !bytes.Contains(out, []byte("Failing input"))
}

// eachTestFile gives every test file of this module to visit.
func eachTestFile(visit func(path string, text []byte)) error {
	return filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("look for tests: %w", err)
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("look for tests: %w", err)
		}
		visit(path, text)
		return nil
	})
}

// goTest runs "go test -json" with the arguments and counts what it says.
func goTest(ctx context.Context, s *summary, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run go test: %w", err)
	}
	failed := len(s.failed)
	readErr := s.read(bufio.NewReader(out))
	if err := cmd.Wait(); err != nil && len(s.failed) == failed {
		return fmt.Errorf("run go test: %w: %s", err, complaints.String())
	}
	return readErr
}
