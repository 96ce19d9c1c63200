package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// tools is where "make deps" puts the linters and gotestsum.
	tools = ".cache/bin"
	// integrationTag marks the test files that need root and a container runtime.
	integrationTag = "integration"
	// clusterTag marks those that need a control plane, besides.
	clusterTag = "cluster"
	// apiServer is the folder of a module of its own: the phases lint, unit and cluster run its
	// checks after this module's.
	apiServer = "apiserver"
	// lazyCollector has Go programs collect garbage a quarter as often as they do by themselves:
	// what lives a minute has better use for two cores.
	lazyCollector = "GOGC=400"
	// hangTimeout is the time after which a package's tests are taken to hang, and say where. Those of
	// the cluster have taken 43 minutes on a busy machine.
	hangTimeout = "60m"
)

// testFlags are the flags of each "go test". With -trimpath, what is compiled is the same in every
// checkout, and the same as in our programs (see GOBUILD in the Makefile). The analyzers of
// "go vet" are the linter's. Linking takes three quarters of the time without the debugger's
// tables, which no test reads.
var testFlags = []string{"-trimpath", "-vet=off", "-ldflags=-w"}

// sharedCache is the environment of checks in the module apiServer. With it they use what building
// its program has compiled, for which all of Kubernetes is compiled; with the race detector or
// without -trimpath, all would be compiled again.
var sharedCache = []string{"CGO_ENABLED=0", "GOFLAGS=-trimpath"}

// lint runs each linter as one check. golangci-lint has the analyzers of "go vet" in it.
func lint(ctx context.Context, s *total) error {
	folders, err := sourceFolders()
	if err != nil {
		return err
	}
	bin, err := filepath.Abs(tools)
	if err != nil {
		return fmt.Errorf("find the linters: %w", err)
	}
	check := func(name, dir string, env []string, command string, args ...string) {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, command), args...)
		cmd.Dir, cmd.Env = dir, slices.Concat(os.Environ(), []string{lazyCollector}, env)
		out, err := cmd.CombinedOutput()
		// gofumpt -l prints the files that differ and ends with 0.
		if err != nil || (name == "gofumpt" && len(out) > 0) {
			s.fail(name, fmt.Sprintf("%s%v", out, err))
			return
		}
		s.pass(name)
	}
	check("gofumpt", "", nil, "gofumpt", append([]string{"-l"}, folders...)...)
	all := []string{"run", "--allow-parallel-runners", "./..."}
	check("golangci-lint", "", nil, "golangci-lint", all...)
	check("golangci-lint of "+apiServer, apiServer, sharedCache, "golangci-lint", all...)
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

// unit runs the tests that need nothing but the code, with the race detector unless $RACE is off.
// The race detector makes TestCrashes play fewer of its crashes: it is run without it, too.
func unit(ctx context.Context, s *total) error {
	return inMemory(func(env []string) error {
		all := append(slices.Clone(sideBySide), "./...")
		raceless := slices.Concat(env, sharedCache)
		if os.Getenv("RACE") == "off" {
			return errors.Join(goTest(ctx, s, "", env, all...), goTest(ctx, s, apiServer, raceless, all...))
		}
		return errors.Join(goTest(ctx, s, "", env, slices.Concat(raceDetector, all)...),
			goTest(ctx, s, "", env, crashTest...), goTest(ctx, s, apiServer, raceless, all...))
	})
}

// raceDetector are the flags for the race detector. With more than one goroutine at a time, Go's
// runtime itself crashes when two goroutines of a synctest bubble look at its timers
// (https://go.dev/issue/78156). The detector needs no such moment: it sees what no lock orders.
var raceDetector = []string{"-race", "-cpu", "1"}

// crashes runs TestCrashes alone: $CRASHES says how much of it.
func crashes(ctx context.Context, s *total) error {
	return inMemory(func(env []string) error { return goTest(ctx, s, "", env, crashTest...) })
}

// sideBySide are the flags for packages that wait more than they compute, for a probe or for a
// process: more of them than cores run side by side.
var sideBySide = []string{"-timeout", hangTimeout, "-p", strconv.Itoa(2 * runtime.NumCPU())}

// crashTest are the arguments of "go test" for TestCrashes alone.
var crashTest = []string{"-timeout", hangTimeout, "-run", "^TestCrashes$", "./test/scenario"}

// sharedMemory is a file system in memory that every Linux has, and roomForTests is the least space
// that it must have, in bytes: a container's has often less.
const (
	sharedMemory = "/dev/shm"
	roomForTests = 4 << 30
)

// inMemory calls run with the environment of tests whose temporary files are in memory, which it
// removes afterwards. Tests write files durably, again and again, and wait most of their time for
// the disk otherwise. Where there is no such memory, they are where they always are.
func inMemory(run func(env []string) error) error {
	env := []string{lazyCollector}
	var memory unix.Statfs_t
	if err := unix.Statfs(sharedMemory, &memory); err != nil || memory.Type != unix.TMPFS_MAGIC ||
		memory.Flags&unix.ST_NOEXEC != 0 || memory.Bavail*uint64(memory.Bsize) < roomForTests {
		return run(env)
	}
	dir, err := shortFolder(sharedMemory)
	if err != nil {
		return fmt.Errorf("make a folder for temporary files: %w", err)
	}
	defer os.RemoveAll(dir)
	// As in /tmp, other users come through: some tests become one.
	if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
		return fmt.Errorf("open the folder for temporary files: %w", err)
	}
	// testing.T takes the second one, if it is set.
	return run(append(env, "TMPDIR="+dir, "GOTMPDIR="+dir))
}

// shortFolder makes a new folder. Its path is short, because tests make sockets beneath it, whose
// paths have at most 107 bytes (unix(7)).
func shortFolder(beneath string) (string, error) {
	for n := 0; ; n++ {
		dir := filepath.Join(beneath, "t"+strconv.Itoa(n))
		if err := os.Mkdir(dir, 0o700); err == nil || !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}

// runtimeVariable chooses the runtime of the integration tests' agents (see test/env): remote if it
// is not set.
const runtimeVariable = "BERTH_TEST_RUNTIME"

// nativeTests selects the integration tests that also run with the native runtime each time, as
// "go test -run" does: a pod that replaces another, logs, and all kinds of streams. All of the
// tests run so if $BERTH_TEST_RUNTIME is "native".
const nativeTests = "^(TestLife|TestCLI)$/^(pods|attach|exec|logs|port-forward)$/^edit$"

// integration runs the tests that need root and a container runtime, and some of them a second time
// with the native runtime.
func integration(ctx context.Context, s *total) error {
	err := tagged(ctx, s, ".", integrationTag, nil)
	if os.Getenv(runtimeVariable) != "" {
		return err
	}
	return errors.Join(err, goTest(ctx, s, ".", []string{runtimeVariable + "=native"}, "-tags", integrationTag,
		"-count", "1", "-timeout", hangTimeout, "-run", nativeTests, "./test/integration"))
}

// cluster runs the tests that need a control plane: those of a node, and beside them those of
// berth-apiserver, whose output follows at the end. Both mostly wait.
func cluster(ctx context.Context, s *total) error {
	var said bytes.Buffer
	server := &total{out: &said}
	done := make(chan error, 1)
	go func() { done <- tagged(ctx, server, apiServer, clusterTag, sharedCache) }()
	err := tagged(ctx, s, ".", clusterTag, nil)
	err = errors.Join(err, <-done)
	_, printErr := said.WriteTo(s.out)
	s.join(server)
	return errors.Join(err, printErr)
}

// tagged runs the tests of a module in files with a build tag, two packages at a time, because a
// small package mostly waits for a single pod. The other tests of these packages are the phase
// unit's.
func tagged(ctx context.Context, s *total, module, tag string, env []string) error {
	var folders, names []string
	err := eachTestFile(module, func(path string, text []byte) {
		if !bytes.HasPrefix(text, []byte("//go:build "+tag+"\n")) {
			return
		}
		folders = append(folders, "./"+filepath.Dir(path))
		names = append(names, functions(text, "Test")...)
	})
	if err != nil || len(folders) == 0 {
		return err
	}
	slices.Sort(folders)
	args := []string{
		"-tags", tag, "-count", "1", "-p", "2", "-timeout", hangTimeout, "-run", "^(" + strings.Join(names, "|") + ")$",
	}
	return goTest(ctx, s, module, env, append(args, slices.Compact(folders)...)...)
}

// functions returns the names of a test file's functions that begin with prefix.
func functions(text []byte, prefix string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^func (`+prefix+`\w+)\(`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

// fuzz runs each fuzz target for $FUZZTIME.
func fuzz(ctx context.Context, s *total) error {
	duration := os.Getenv("FUZZTIME")
	if duration == "" {
		duration = "10s"
	}
	var runs [][2]string
	err := eachTestFile(".", func(path string, text []byte) {
		for _, name := range functions(text, "Fuzz") {
			runs = append(runs, [2]string{"./" + filepath.Dir(path), name})
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

// fuzzOne runs one target. "go test" may call the end of the time a failure (go.dev/issue/75804),
// without naming an input: then the target is run again.
func fuzzOne(ctx context.Context, folder, target, duration string) (out []byte, err error) {
	for range fuzzTries {
		args := slices.Concat([]string{"test"}, testFlags,
			[]string{"-run", "^$", "-fuzz", "^" + target + "$", "-fuzztime", duration, folder})
		out, err = exec.CommandContext(ctx, "go", args...).CombinedOutput()
		if err == nil || ctx.Err() != nil || !timeOver(out) {
			break
		}
	}
	return out, err
}

// timeOver says whether a failed fuzz target reports the end of its time and nothing else.
func timeOver(out []byte) bool {
	return bytes.Contains(out, []byte("\n    context deadline exceeded\n")) &&
		!bytes.Contains(out, []byte("Failing input"))
}

// eachTestFile gives every test file of the module in a folder to visit, with the file's path in
// the module. Modules below the folder are others.
func eachTestFile(module string, visit func(path string, text []byte)) error {
	root := os.DirFS(module)
	return fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("look for tests: %w", err)
		}
		if d.IsDir() && path != "." {
			_, err := fs.Stat(root, path+"/go.mod")
			if err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata" {
				return fs.SkipDir
			}
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return fmt.Errorf("look for tests: %w", err)
		}
		visit(path, text)
		return nil
	})
}

// stopGrace is how long gotestsum may take to end after a signal, with the tests that it runs.
const stopGrace = time.Minute

// goTest has gotestsum run "go test" with the arguments in a module's folder, in this environment
// and env, and counts what it reports.
func goTest(ctx context.Context, s *total, module string, env []string, args ...string) error {
	dir, err := os.MkdirTemp("", "berth-runner-")
	if err != nil {
		return fmt.Errorf("make a folder for the report: %w", err)
	}
	defer os.RemoveAll(dir)
	report := filepath.Join(dir, "report.xml")
	program, err := filepath.Abs(filepath.Join(tools, "gotestsum"))
	if err != nil {
		return fmt.Errorf("find gotestsum: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, append([]string{
		"--format", "pkgname-and-test-fails", "--format-icons", "text", "--format-hide-empty-pkg", "--hide-summary",
		"output",
		"--junitfile", report, "--",
	}, append(slices.Clone(testFlags), args...)...)...)
	cmd.Dir, cmd.Env = module, append(os.Environ(), env...)
	// which gotestsum hands on to "go test"
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	var said, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(s.out, &said), io.MultiWriter(s.out, &complaints)
	runErr := cmd.Run()
	text, err := os.ReadFile(report)
	if err != nil {
		return fmt.Errorf("run go test: %w", errors.Join(runErr, err, errors.New(complaints.String())))
	}
	_, compiler, _ := strings.Cut(said.String(), "\n=== Errors\n")
	compiler, _, _ = strings.Cut(compiler, "\nDONE ")
	failed, err := s.add(text, compiler)
	if runErr != nil && failed == 0 {
		return fmt.Errorf("run go test: %w: %s%s", runErr, complaints.String(), compiler)
	}
	return err
}
