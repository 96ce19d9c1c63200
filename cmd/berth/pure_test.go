package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/client/api"
)

func TestChoosePodPrefersFullNames(t *testing.T) {
	pod := func(namespace, name string) v1.Pod {
		return v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.PodSpec{NodeName: "N1"}}
	}
	pods := []v1.Pod{pod("a", "web"), pod("a", "web-n1"), pod("a", "web-n1"), pod("b", "only-n1"), pod("pod", "odd-n1")}
	for _, tc := range []struct{ arg, namespace, want string }{
		{"web", "", "a/web"},
		{"web-n1", "", "a/web-n1"}, // a pod and its successor have the same name
		{"only", "", "b/only-n1"},
		{"pod/only", "", "b/only-n1"},
		{"b/only", "", "b/only-n1"},
		{"b/only", "b", "b/only-n1"},
		{"only", "a", ""},
		{"b/only", "a", ""},
		{"", "", ""},
		{"/", "", ""},
	} {
		got, err := choosePod(pods, tc.arg, tc.namespace)
		switch {
		case tc.want == "" && err == nil:
			t.Errorf("%s -n %s: got %s/%s", tc.arg, tc.namespace, got.Namespace, got.Name)
		case tc.want != "" && (err != nil || got.Namespace+"/"+got.Name != tc.want):
			t.Errorf("%s -n %s: %v %v, want %s", tc.arg, tc.namespace, got, err, tc.want)
		}
	}
}

func TestChooseContainer(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}}}
	if got, note, err := chooseContainer(pod, ""); got != "a" || note == "" || err != nil {
		t.Errorf("first: %q %q %v", got, note, err)
	}
	pod.Annotations = map[string]string{defaultContainerAnnotation: "b"}
	if got, note, err := chooseContainer(pod, ""); got != "b" || note != "" || err != nil {
		t.Errorf("annotated: %q %q %v", got, note, err)
	}
	pod.Annotations[defaultContainerAnnotation] = "nope"
	if got, _, err := chooseContainer(pod, ""); got != "a" || err != nil {
		t.Errorf("annotated with nonsense: %q %v", got, err)
	}
	if _, _, err := chooseContainer(&v1.Pod{}, ""); err == nil {
		t.Error("a pod without containers has one")
	}
}

func TestRunOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		in      string
		changed bool
		want    string
	}{
		"default":    {"kind: Pod\nspec: {containers: []}", true, `"restartPolicy":"Never"`},
		"always":     {"kind: Pod\nspec: {restartPolicy: Always}", true, `"restartPolicy":"Never"`},
		"on failure": {"kind: Pod\nspec: {restartPolicy: OnFailure}", false, `"restartPolicy":"OnFailure"`},
		"in a list":  {"kind: List\nitems: [{kind: Pod, spec: {}}]", true, `"restartPolicy":"Never"`},
		"others": {
			"kind: ConfigMap\ndata: {a: b}\n---\nkind: Pod\nspec: {restartPolicy: Never}", false, `"data":{"a":"b"}`,
		},
		"empty docs": {"---\n---\nkind: Pod\nspec: {}\n---\n", true, `"restartPolicy":"Never"`},
	} {
		out, changed, err := runOnce([]byte(tc.in))
		if err != nil || changed != tc.changed || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s: %v %v %s", name, changed, err, out)
		}
	}
	if _, _, err := runOnce([]byte("a: [")); err == nil {
		t.Error("nonsense was read")
	}
}

func TestResultOnPods(t *testing.T) {
	end := func(code int32, after time.Duration) v1.ContainerStatus {
		return v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: code, FinishedAt: metav1.NewTime(time.Unix(0, 0).Add(after)),
		}}}
	}
	wait := func(reason string) v1.ContainerStatus {
		return v1.ContainerStatus{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
	}
	started := metav1.Now()
	for name, tc := range map[string]struct {
		status v1.PodStatus
		done   bool
		code   int
		fails  bool
	}{
		"runs": {status: v1.PodStatus{Phase: v1.PodRunning}},
		"starts": {status: v1.PodStatus{
			Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{wait("ContainerCreating")},
		}},
		"first pull": {status: v1.PodStatus{
			Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{wait("ErrImagePull")},
		}},
		"no image": {
			status: v1.PodStatus{
				Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{wait("ImagePullBackOff")},
			},
			done:  true,
			code:  125,
			fails: true,
		},
		"init, no key": {
			status: v1.PodStatus{
				Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{wait("CreateContainerConfigError")},
			},
			done:  true,
			code:  125,
			fails: true,
		},
		"succeeded": {
			status: v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{end(0, 0)}},
			done:   true,
		},
		"first failed": {
			status: v1.PodStatus{
				Phase:             v1.PodFailed,
				StartTime:         &started,
				ContainerStatuses: []v1.ContainerStatus{end(5, 2), end(0, 0), end(4, 1)},
			},
			done: true,
			code: 4,
		},
		"init failed": {
			status: v1.PodStatus{
				Phase:                 v1.PodFailed,
				StartTime:             &started,
				InitContainerStatuses: []v1.ContainerStatus{end(9, 0)},
			},
			done: true,
			code: 9,
		},
		"no command": {status: v1.PodStatus{
			Phase:     v1.PodFailed,
			StartTime: &started,
			ContainerStatuses: []v1.ContainerStatus{
				{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
					ExitCode: 128,
					Reason:   "StartError",
					Message:  `exec: "x": executable file not found in $PATH`,
				}}},
			},
		}, done: true, code: 127, fails: true},
		"no command, tried again": {status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
			State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				ExitCode: 128,
				Reason:   "StartError",
				Message:  `exec: "/x": permission denied`,
			}},
		}}}, done: true, code: 126, fails: true},
		"ends with 128": {
			status: v1.PodStatus{
				Phase:             v1.PodFailed,
				StartTime:         &started,
				ContainerStatuses: []v1.ContainerStatus{end(128, 0)},
			},
			done: true,
			code: 128,
		},
		"deadline": {
			status: v1.PodStatus{
				Phase:             v1.PodFailed,
				StartTime:         &started,
				Reason:            "DeadlineExceeded",
				ContainerStatuses: []v1.ContainerStatus{end(0, 0)},
			},
			done:  true,
			code:  1,
			fails: true,
		},
		"refused": {
			status: v1.PodStatus{Phase: v1.PodFailed, Reason: "NodePorts"},
			done:   true,
			code:   125,
			fails:  true,
		},
	} {
		done, code, err := runResult(&v1.Pod{Status: tc.status})
		if done != tc.done || code != tc.code || (err != nil) != tc.fails {
			t.Errorf("%s: %v %d %v", name, done, code, err)
		}
	}
}

func TestStartErrorCodes(t *testing.T) {
	const runc = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc " +
		"create failed: unable to start container process: "
	for message, want := range map[string]int{
		runc + `exec: "nosuch": executable file not found in $PATH: unknown`:                                   127,
		runc + `exec: "/nodir/x": stat /nodir/x: no such file or directory`:                                    127,
		"OCI runtime create failed: executable file `nosuch` not found in $PATH: No such file or directory":    127,
		runc + `exec: "/etc/passwd": permission denied`:                                                        126,
		runc + `exec: "/etc": is a directory`:                                                                  126,
		"OCI runtime create failed: open executable: Permission denied":                                        126,
		runc + `error during container init: error mounting "/a" to rootfs at "/b": no such file or directory`: 125,
		runc + `chdir to cwd ("/nope") set in config.json failed: no such file or directory`:                   125,
		"": 125,
	} {
		if got := startErrorCode(message); got != want {
			t.Errorf("%s: %d, want %d", message, got, want)
		}
	}
}

func TestNeedRoot(t *testing.T) {
	if err := needRoot("the agent", 0); err != nil {
		t.Error(err)
	}
	if err := needRoot("the agent", 1000); err == nil || !strings.Contains(err.Error(), "user 1000: use sudo") {
		t.Errorf("got %v", err)
	}
}

func TestNamedPorts(t *testing.T) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{
			Name: "http", ContainerPort: 8080,
		}}}}},
	}
	got, err := namedPorts(pod, []string{"http", "80:http", ":http", "80", "80:81", ":82", "a:b:c", ":"})
	if want := []string{"8080", "80:8080", ":8080", "80", "80:81", ":82", "a:b:c", ":"}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("%q %v", got, err)
	}
	if _, err := namedPorts(pod, []string{"nonsense"}); err == nil ||
		err.Error() != `pod "web" does not have a named port "nonsense"` {
		t.Errorf("got %v", err)
	}
}

func TestBlamesManifests(t *testing.T) {
	manifests := []api.Manifest{
		{File: "/m/ok.yaml", Kind: "Pod", Namespace: "default", Name: "web-n1", Accepted: true},
		{
			File:      "/m/valid.yaml",
			Kind:      "Pod",
			Namespace: "default",
			Name:      "bad-n1",
			Line:      7,
			Message:   "spec.x: Required value",
		},
		{File: "/m/early.yaml", Kind: "Pod", Name: "early", Message: "spec.y: must be a list"},
		{File: "/m/broken.yaml", Line: 3, Message: "not valid YAML"},
	}
	for _, tc := range []struct{ arg, namespace, want string }{
		{"bad", "", "its manifest /m/valid.yaml is refused: line 7: spec.x: Required value"},
		{"default/bad-n1", "", "/m/valid.yaml is refused"},
		{"bad", "other", "manifests refused: 3"},
		{"other/bad", "", "manifests refused: 3"},
		{"early", "", "/m/early.yaml is refused"},
		{"kube-system/early-n1", "", "/m/early.yaml is refused"},
		{"ea", "", "manifests refused: 3"},
		{"web", "", "manifests refused: 3"},
	} {
		err := &unknownPodError{message: "no pod"}
		err.blame(manifests, tc.arg, tc.namespace, "N1")
		if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s -n %s: %v, want %q", tc.arg, tc.namespace, err, tc.want)
		}
	}
	err := &unknownPodError{message: "no pod"}
	err.blame(manifests[:1], "bad", "", "N1")
	if err.Error() != "no pod" {
		t.Errorf("got %v", err)
	}
}

func TestLinesStayWhole(t *testing.T) {
	var out bytes.Buffer
	l := &lineWriter{w: &out, prefix: "[a] "}
	for _, piece := range []string{"on", "e\ntw", "o\n", "\n", "rest"} {
		if _, err := l.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	l.flush()
	if want := "[a] one\n[a] two\n[a] \n[a] rest\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if _, err := l.Write(bytes.Repeat([]byte("x"), 3*maxLine)); err != nil || len(l.pending) >= maxLine {
		t.Errorf("an endless line is kept: %d bytes, %v", len(l.pending), err)
	}

	out.Reset()
	long := strings.Repeat("y", maxLine+10)
	l = &lineWriter{w: &out, prefix: "> "}
	for _, piece := range []string{"one\n" + long[:maxLine], long[maxLine:], "\n" + long} {
		if _, err := l.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	l.flush()
	if want := "> one\n> " + long + "\n> " + long + "\n"; out.String() != want {
		t.Errorf("long lines: %d bytes, want %d", out.Len(), len(want))
	}
}

func TestRunHomesDiffer(t *testing.T) {
	long := strings.Repeat("x", 200)
	names := map[string]bool{}
	for _, p := range []podName{{"a", "b"}, {"a", long + "1"}, {"a", long + "2"}, {"b", "a"}} {
		if dir := p.dir(); names[dir] || len(dir) > 60 {
			t.Errorf("%s: %s", p, dir)
		} else {
			names[dir] = true
		}
	}
}

func TestBecause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	signal := errors.New("terminated")
	broken := errors.New("broken")
	if because(ctx, context.Canceled) {
		t.Error("nothing has ended yet")
	}
	cancel(signal)
	for err, want := range map[error]bool{
		fmt.Errorf("waiting: %w", signal):           true,
		fmt.Errorf("waiting: %w", context.Canceled): true,
		broken: false,
		nil:    false,
	} {
		if got := because(ctx, err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestUnknownFormats checks that every verb with -o refuses an unknown format before it does
// anything, and prints the known ones.
func TestUnknownFormats(t *testing.T) {
	found := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, verb := range cmd.Commands() {
			visit(verb)
		}
		if f := cmd.Flags().Lookup("output"); f == nil || f.Shorthand != "o" {
			return
		}
		found++
		cmd.RunE = func(*cobra.Command, []string) error { t.Errorf("%s began", cmd.CommandPath()); return nil }
		root := cmd.Root()
		root.SetArgs(append(strings.Fields(cmd.CommandPath())[1:], "-o", "xml"))
		cmd.Args = cobra.ArbitraryArgs
		if got, err := root.ExecuteC(); err == nil || !strings.HasPrefix(err.Error(), "-o xml is not known: use ") ||
			usageCode(got) != misused {
			t.Errorf("%s -o xml: %v", cmd.CommandPath(), err)
		}
	}
	visit(newRoot())
	if found < 12 {
		t.Errorf("%d verbs have -o: are they still found?", found)
	}
}

// TestLogPrefix checks that lines of several pods have pod and container in kubectl's form. Pods
// with the same name can only come from several namespaces, and are then shown with the namespace.
func TestLogPrefix(t *testing.T) {
	source := func(namespace, pod string) logSource {
		return logSource{&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}}, "c"}
	}
	for _, tc := range []struct {
		sources []logSource
		want    string
	}{
		{[]logSource{source("x", "a")}, "[pod/a/c] line\n"},
		{[]logSource{source("x", "a"), source("x", "b")}, "[pod/a/c] line\n[pod/b/c] line\n"},
		{
			[]logSource{source("x", "a"), source("y", "b"), source("y", "a")},
			"[pod/x/a/c] line\n[pod/b/c] line\n[pod/y/a/c] line\n",
		},
	} {
		var out bytes.Buffer
		p := &logPrinter{sources: tc.sources, prefix: true, out: &out}
		for _, s := range tc.sources {
			w, finish := p.writer(s)
			fmt.Fprint(w, "line")
			finish()
		}
		if out.String() != tc.want {
			t.Errorf("got %q, want %q", out.String(), tc.want)
		}
	}
}

// TestConfigOfEveryCommand checks that each command that asks an agent takes its config.
func TestConfigOfEveryCommand(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("socket") != nil && cmd.Flags().Lookup("config") == nil {
			t.Errorf("%s has --socket and no --config", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRoot())
}
