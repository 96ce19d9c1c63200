package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/cri/serve"
	"github.com/berthd/berth/test/images"
)

// newFake serves a fake runtime until the watcher of its events is closed. It returns the runtime's
// address. The agent is a process of its own, so the runtime's work does not count as the agent's,
// and every call goes over a socket, as with containerd.
func newFake(ctx context.Context) (endpoint string, w *watcher, err error) {
	dir, err := os.MkdirTemp("", "berth-bench")
	if err != nil {
		return "", nil, fmt.Errorf("make the folder of the fake runtime: %w", err)
	}
	rt := fake.New(fake.Config{
		CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS, WriteLogs: true,
		Images: []fake.Image{{Name: images.Busybox, Present: true}},
	})
	socket := filepath.Join(dir, "cri.sock")
	stop, err := serve.Start(ctx, socket, rt)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	watching, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	w = &watcher{pauses: map[string]bool{}, more: make(chan struct{}), close: func() error {
		end()
		<-done
		stop()
		return os.RemoveAll(dir)
	}}
	events, err := rt.Events(watching)
	if err != nil {
		close(done)
		return "", nil, errors.Join(err, w.close())
	}
	go func() {
		defer close(done)
		for e := range events {
			w.takeFake(rt, e)
		}
	}()
	return "unix://" + socket, w, nil
}

// takeFake adds an event of the fake runtime.
func (w *watcher) takeFake(rt *fake.Runtime, e cri.Event) {
	kinds := map[cri.EventType]kind{
		cri.ContainerStarted: started, cri.ContainerStopped: exited, cri.ContainerDeleted: deleted,
	}
	if e.Type == cri.ContainerCreated {
		w.made(e.ID, rt.Sandbox(e.ID) != nil)
	} else if kind, known := kinds[e.Type]; known {
		w.add(event{kind: kind, id: e.ID, at: e.Time})
	}
}
