//go:build cluster

package test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestLargeStore has the store refuse writes, as etcd does when its file is as large as it may be.
// Creations and changes get 507, deletions go on, and a defragmentation and a start end it.
func TestLargeStore(t *testing.T) {
	s := start(t, "--scheduler=false")
	s.kubectl(t, "create", "configmap", "first")
	s.kubectl(t, "create", "configmap", "second")
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(program, append(args, "--data-dir", s.dir)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	s.alarm(t)
	s.refuses(t, "the store is too large", "", "create", "configmap", "no-room")
	s.refuses(t, "InsufficientStorage", "", "annotate", "configmap", "first", "a=b")
	s.kubectl(t, "delete", "configmap", "first")
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if out := run("snapshot", "save", file); strings.Count(out, "\n") != 2 {
		t.Errorf("a snapshot says more than it should:\n%s", out)
	}
	if out := run("defragment"); !strings.HasPrefix(out, "the content took") || strings.Count(out, "\n") != 1 {
		t.Errorf("a defragmentation says more than it should:\n%s", out)
	}
	s.kubectl(t, "create", "configmap", "after-a-defragmentation")
	s.alarm(t)
	s.stop(t)
	s.start(t)
	s.kubectl(t, "create", "configmap", "after-a-start")
	s.stop(t)
	run("snapshot", "restore", file)
	s.start(t)
	s.kubectl(t, "create", "configmap", "after-a-restore")
	s.kubectl(t, "get", "configmap", "second")
	s.kill()
	for _, args := range [][]string{{"snapshot", "save", file}, {"defragment"}} {
		out, err := exec.Command(program, append(args, "--data-dir", s.dir)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "start berth-apiserver first") {
			t.Errorf("%v of a server that was killed: %v: %s", args, err, out)
		}
	}
}

// alarm raises etcd's alarm of a full store.
func (s *server) alarm(t *testing.T) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + s.file("etcd.sock")}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	status, err := client.Status(t.Context(), client.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: status.Header.MemberId,
	})
	if err != nil {
		t.Fatal(err)
	}
}
