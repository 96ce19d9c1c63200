package checkpoint

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/probes"
	"github.com/berthd/berth/test/leaks"
)

// saverDir names the directory in which a copy of the test program saves until it is killed.
const saverDir = "CHECKPOINT_TEST_SAVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(saverDir); dir != "" {
		saveForever(dir)
	}
	os.Exit(leaks.Run(m))
}

func record(uid string) *Record {
	return &Record{
		Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "ns", Name: "p"},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")},
			}}}},
		},
		Admitted: true, Status: &v1.PodStatus{Phase: v1.PodRunning},
		Backoff:   map[string]plan.Backoff{"a": {Delay: 20 * time.Second, Set: time.Unix(1700000000, 5).UTC()}},
		PostStart: map[string]bool{"id": true},
		Stop: &worker.Stop{
			Reason:  "Evicted",
			Message: "low",
			Grace:   ptr.To(int64(5)),
			Since:   time.Unix(1700000001, 7).UTC(),
		},
		UnwantedSince: time.Unix(1700000002, 8).UTC(),
		Stops: map[string]plan.ContainerStop{"id": {
			Since:  time.Unix(1700000003, 9).UTC(),
			Grace:  time.Second,
			Hooked: true,
		}},
		StartFailed:   map[string]bool{"old": true},
		InitializedIn: "S0",
		Probes:        probes.Snapshot{"a": {ContainerID: "id", Ready: true}},
	}
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestResume(t *testing.T) {
	now := time.Unix(1700000013, 9).UTC()
	for _, tc := range []struct {
		name   string
		change func(*Record)
		want   worker.Phase
	}{
		{"running", func(r *Record) { r.Stop = nil }, worker.Running},
		{"ending", func(*Record) {}, worker.Terminating},
		{"ended", func(r *Record) { r.Ended = true }, worker.Terminated},
		{"ended and never told anybody", func(r *Record) { r.Ended, r.Status = true, nil }, worker.Terminating},
	} {
		r := record("u")
		r.Stops["signaled"] = plan.ContainerStop{Since: r.Stops["id"].Since, Grace: 30 * time.Second, Signaled: true}
		tc.change(r)
		if got := r.Resume(now); got.Phase != tc.want || got.Stop != r.Stop || got.UnwantedSince != r.UnwantedSince {
			t.Errorf("%s: %+v", tc.name, got)
		}
		if r.Ended != (tc.want == worker.Terminated) {
			t.Errorf("%s: the record says that the pod has ended: %v", tc.name, r.Ended)
		}
		if got := r.Stops["id"]; got.Since != now || !got.Hooked {
			t.Errorf("%s: a stop before its signal goes on as %+v", tc.name, got)
		}
		if got := r.Stops["signaled"].Left(now); got != 20*time.Second {
			t.Errorf("%s: %s are left to a container that has its signal", tc.name, got)
		}
	}
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	s := open(t, dir)
	want := map[types.UID]*Record{}
	for _, uid := range []string{"u", "a/b", "b", "..", ".", "", "ä ö", "%2F", "../../etc/passwd", "x.json", "x.tmp"} {
		rec := record(uid)
		if err := s.Save(rec.Pod.UID, rec); err != nil {
			t.Fatalf("uid %q: %v", uid, err)
		}
		want[rec.Pod.UID] = rec
	}
	got, err := open(t, dir).Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
	for uid, rec := range want {
		if g := got[uid]; g == nil || !reflect.DeepEqual(g.Backoff, rec.Backoff) || g.InitializedIn != "S0" ||
			!g.PostStart["id"] ||
			!g.Admitted || g.Status.Phase != v1.PodRunning || !g.Probes["a"].Ready ||
			g.Pod.Spec.Containers[0].Resources.Limits.Memory().Value() != 64<<20 {
			t.Errorf("record %q came back as %+v", uid, g)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s has mode %s", e.Name(), info.Mode())
		}
	}
	for uid := range want {
		for range 2 {
			if err := s.Remove(uid); err != nil {
				t.Error(err)
			}
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestSaveWritesOnlyWhatChanged(t *testing.T) {
	s := open(t, t.TempDir())
	rec := record("u")
	save := func() {
		t.Helper()
		if err := s.Save("u", rec); err != nil {
			t.Fatal(err)
		}
	}
	there := func() bool { _, err := os.Stat(s.path("u")); return err == nil }
	save()
	os.Remove(s.path("u"))
	if save(); there() {
		t.Error("the same record was written twice")
	}
	rec.Ended = true
	if save(); !there() {
		t.Error("a changed record was not written")
	}
	if err := s.Remove("u"); err != nil {
		t.Fatal(err)
	}
	if save(); !there() {
		t.Error("a record was not written after it was removed")
	}
}

func TestLoadSortsOutBadFiles(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		aside   bool
	}{
		"empty":           {"", true},
		"cut off":         {`{"version":1,"pod":{"metadata":{"uid":"bad"`, true},
		"binary":          {"\x00\xff\x00", true},
		"not an object":   {`[1,2]`, true},
		"wrong type":      {`{"version":1,"pod":"p"}`, true},
		"no pod":          {`{"version":1}`, true},
		"another's":       {`{"version":1,"pod":{"metadata":{"uid":"other"}}}`, true},
		"another version": {`{"version":2,"pod":{"metadata":{"uid":"bad"}}}`, false},
		"no version":      {`{"pod":{"metadata":{"uid":"bad"}}}`, false},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			if err := s.Save("good", record("good")); err != nil {
				t.Fatal(err)
			}
			bad := filepath.Join(dir, "bad.json")
			if err := os.WriteFile(bad, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := s.Load()
			if err == nil || !strings.Contains(err.Error(), bad) {
				t.Errorf("error %v does not name the file", err)
			}
			if len(got) != 1 || got["good"] == nil {
				t.Errorf("records %v", got)
			}
			if _, err := os.Stat(bad); (err == nil) == c.aside {
				t.Errorf("still there: %v", err == nil)
			}
			if c.aside {
				if _, err := s.Load(); err != nil {
					t.Errorf("reported twice: %v", err)
				}
			}
			if err := s.Save("bad", record("bad")); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Load(); err != nil || len(got) != 2 {
				t.Errorf("a bad file keeps a good one out: %v", err)
			}
			if err := s.Remove("bad"); err != nil {
				t.Fatal(err)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 1 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

func TestLoadLooksOnlyAtRecords(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "dir.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README", "u.json.tmp", "u.json~"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir)
	if got, err := s.Load(); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "u.json.tmp")); err == nil {
		t.Error("a half-written file stays")
	}
}

func TestErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file); err == nil {
		t.Error("a file was opened as a store")
	}
	dir := filepath.Join(t.TempDir(), "d")
	s := open(t, dir)
	long := types.UID(strings.Repeat("x", 300))
	if err := s.Save(long, record(string(long))); err == nil || !strings.Contains(err.Error(), "xxx") {
		t.Errorf("a name that is too long: %v", err)
	}
	if err := os.Mkdir(s.path("dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Save("dir", record("dir")); err == nil {
		t.Error("a record was written over a directory")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	// Somebody removes the directory of a store in use.
	os.RemoveAll(dir)
	if err := s.Save("u", record("u")); err != nil {
		t.Errorf("saving without the directory: %v", err)
	}
	os.RemoveAll(dir)
	if _, err := s.Load(); err == nil {
		t.Error("a directory that is gone is an empty one")
	}
	if err := s.Remove("u"); err != nil {
		t.Error(err)
	}
}

// TestKilledWhileSaving kills a program that saves, at any moment, and finds a whole record each
// time.
func TestKilledWhileSaving(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Save("u", record("u")); err != nil {
		t.Fatal(err)
	}
	for round := range 8 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), saverDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Fscanln(out) // it has begun
		<-time.After(time.Duration(round) * 700 * time.Microsecond)
		cmd.Process.Kill()
		cmd.Wait()
		got, err := open(t, dir).Load()
		if err != nil || got["u"] == nil || got["u"].Pod.Name != "p" {
			t.Fatalf("after kill %d: %v, %v", round, got, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("after kill %d there is %v", round, entries)
		}
	}
}

func saveForever(dir string) {
	s, err := Open(dir)
	if err != nil {
		panic(err)
	}
	rec := record("u")
	fmt.Println()
	for i := 0; ; i++ {
		rec.Status.Message = strings.Repeat(fmt.Sprint(i), 5000)
		if err := s.Save("u", rec); err != nil {
			panic(err)
		}
	}
}

// Agents before the field "cause" wrote only the reason of a stop: the cause comes from the reason.
func TestCauseOfStopFromOlderAgent(t *testing.T) {
	for reason, want := range map[string]worker.Cause{
		"Drained": worker.CauseDrain, "Terminated": worker.CauseShutdown, "DeadlineExceeded": worker.CauseDeadline,
		"Evicted": worker.CauseRemoved, "": worker.CauseRemoved,
	} {
		s := open(t, t.TempDir())
		data := `{"version":1,"pod":{"metadata":{"uid":"u"}},"stop":{"reason":"` + reason +
			`","since":"2023-11-14T22:13:21Z"}}`
		if err := os.WriteFile(s.path("u"), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := s.Load()
		if err != nil {
			t.Fatal(err)
		}
		if got["u"].Stop.Cause != want || got["u"].Stop.Reason != reason {
			t.Errorf("reason %q: the stop is %+v, want cause %q", reason, got["u"].Stop, want)
		}
	}

	// A cause that was written counts, whatever the reason.
	s := open(t, t.TempDir())
	rec := record("u")
	rec.Stop = &worker.Stop{Cause: worker.CausePreempted, Reason: "Terminated"}
	if err := s.Save("u", rec); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(); err != nil || got["u"].Stop.Cause != worker.CausePreempted {
		t.Errorf("%+v, %v", got["u"].Stop, err)
	}
}
