package oom

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

const (
	global = "6,1234,5678,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/" +
		",mems_allowed=0,global_oom,task_memcg=/kubepods/burstable/podx/y,task=java,pid=4242,uid=0"
	own = "6,1234,5678,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/" +
		"kubepods/podx,task_memcg=/kubepods/podx/y,task=java,pid=4242,uid=0"
)

func TestParse(t *testing.T) {
	java := Victim{Process: "java", PID: 4242, Cgroup: "/kubepods/burstable/podx/y"}
	for record, want := range map[string]Victim{
		global:        java,
		global + "\n": java,
		"6,1,2,-;oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=0,cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/" +
			",task=a,task=b,pid=1,c,pid=7,uid=1": {
			Process: "a,task=b,pid=1,c",
			PID:     7,
			Cgroup:  "/",
		},
		own:                            {},
		"1" + global:                   {}, // a process wrote this record
		"":                             {},
		"oom-kill":                     {},
		"6,1,2,-;oom-kill:constraint=": {},
		"6,1,2,-;x" + global:           {},
		"6,1,2,-;oom-kill:constraint=,global_oom,task_memcg=/,task=x,pid=,uid=0": {},
		"6,1,2,-;oom-kill:constraint=,global_oom,task_memcg=/,pid=1,task=x":      {},
		" SUBSYSTEM=acpi": {},
		"6,1,2,-;Memory cgroup out of memory: Killed process 4242 (java)": {},
	} {
		if got, ok := Parse(record); got != want || ok != (want != Victim{}) {
			t.Errorf("%q gives %+v, %t, want %+v", record, got, ok, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(global)
	f.Add(own)
	f.Fuzz(func(t *testing.T, record string) {
		if v, ok := Parse(record); !ok && v != (Victim{}) {
			t.Errorf("%q gives %+v", record, v)
		}
	})
}

func TestWatch(t *testing.T) {
	if err := Watch(t.Context(), filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing log: %v", err)
	}
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	kernel, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	ctx, cancel := context.WithCancel(t.Context())
	victims, done := make(chan Victim), make(chan error, 1)
	go func() { done <- Watch(ctx, path, func(v Victim) { victims <- v }) }()
	for range 2 {
		if _, err := kernel.WriteString(own + "\n SUBSYSTEM=x\n" + global + "\n"); err != nil {
			t.Fatal(err)
		}
		if v := <-victims; v.PID != 4242 {
			t.Errorf("victim %+v", v)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
