package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestChoosePodPrefersFullNames(t *testing.T) {
	pod := func(namespace, name string) v1.Pod {
		return v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.PodSpec{NodeName: "N1"}}
	}
	pods := []v1.Pod{pod("a", "web"), pod("a", "web-n1"), pod("a", "web-n1"), pod("b", "only-n1"), pod("pod", "odd-n1")}
	for _, tc := range []struct{ arg, namespace, want string }{
		{"web", "", "a/web"},
		{"web-n1", "", "a/web-n1"}, // a pod and its successor are one name
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

func TestDifferences(t *testing.T) {
	x := map[string]any{"a": 1.0, "gone": true, "list": []any{1.0, 2.0}, "same": "s", "map": map[string]any{"k": "v"}}
	y := map[string]any{"a": 2.0, "list": []any{1.0, 3.0, 4.0}, "same": "s", "map": nil, "new": strings.Repeat("x", 500)}
	got := differences(x, y)
	want := []string{"a: 1 -> 2", "gone: true -> (none)", "list[1]: 2 -> 3", "list[2]: (none) -> 4", `map.k: "v" -> (none)`}
	if len(got) != 6 || !slices.Equal(got[:5], want) || len(got[5]) > 200 {
		t.Errorf("got %q", got)
	}
	if got := differences(x, x); len(got) != 0 {
		t.Errorf("the same differs: %q", got)
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
		"others":     {"kind: ConfigMap\ndata: {a: b}\n---\nkind: Pod\nspec: {restartPolicy: Never}", false, `"data":{"a":"b"}`},
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

func TestVerdictOnPods(t *testing.T) {
	end := func(code int32, after time.Duration) v1.ContainerStatus {
		return v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(time.Unix(0, 0).Add(after))}}}
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
		"runs":         {status: v1.PodStatus{Phase: v1.PodRunning}},
		"starts":       {status: v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{wait("ContainerCreating")}}},
		"first pull":   {status: v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{wait("ErrImagePull")}}},
		"no image":     {status: v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{wait("ImagePullBackOff")}}, done: true, code: 125, fails: true},
		"init, no key": {status: v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{wait("CreateContainerConfigError")}}, done: true, code: 125, fails: true},
		"succeeded":    {status: v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{end(0, 0)}}, done: true},
		"first failed": {status: v1.PodStatus{Phase: v1.PodFailed, StartTime: &started, ContainerStatuses: []v1.ContainerStatus{end(5, 2), end(0, 0), end(4, 1)}}, done: true, code: 4},
		"init failed":  {status: v1.PodStatus{Phase: v1.PodFailed, StartTime: &started, InitContainerStatuses: []v1.ContainerStatus{end(9, 0)}}, done: true, code: 9},
		"deadline":     {status: v1.PodStatus{Phase: v1.PodFailed, StartTime: &started, Reason: "DeadlineExceeded", ContainerStatuses: []v1.ContainerStatus{end(0, 0)}}, done: true, code: 1, fails: true},
		"refused":      {status: v1.PodStatus{Phase: v1.PodFailed, Reason: "NodePorts"}, done: true, code: 125, fails: true},
	} {
		done, code, err := verdictOn(&v1.Pod{Status: tc.status})
		if done != tc.done || code != tc.code || (err != nil) != tc.fails {
			t.Errorf("%s: %v %d %v", name, done, code, err)
		}
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
	if err := copyLines(&out, strings.NewReader("one\n"+long+"\nend"), "> "); err != nil || out.String() != "> one\n> "+long+"\n> end" {
		t.Errorf("copyLines: %v %d bytes", err, out.Len())
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
