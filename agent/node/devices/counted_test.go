package devices

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/test/deviceplugin"
	"github.com/berthd/berth/test/env"
)

// counted returns what admission counts of a Node object's resources, as "name=amount".
func (b *bed) counted(object ...string) string {
	list := v1.ResourceList{}
	for _, text := range object {
		name, amount, _ := strings.Cut(text, "=")
		list[v1.ResourceName(name)] = apiresource.MustParse(amount)
	}
	var out []string
	for name, amount := range b.Counted(list) {
		out = append(out, fmt.Sprintf("%s=%s", name, amount.String()))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Admission counts what no plugin gives out: nothing is left of a plugin that was given up, but
// what containers have of it.
func TestCountedResources(t *testing.T) {
	b := start(t, shortDir(t))
	object := []string{"cpu=4", "example.com/card=2", "example.com/license=5", "kubernetes.io/batch=1"}
	if got, want := b.counted(object...), "example.com/card=2 example.com/license=5"; got != want {
		t.Errorf("before the plugin: %s, want %s", got, want)
	}
	p := b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a", "b", "c")})
	if got, want := b.counted(object...), "example.com/license=5"; got != want {
		t.Errorf("with the plugin: %s, want %s", got, want)
	}
	p.Stop()
	env.Eventually(t, "the plugin's end", func() error { return b.count(card, 3, 0) })
	if got, want := b.counted(object...), "example.com/license=5"; got != want {
		t.Errorf("while the plugin may come back: %s, want %s", got, want)
	}
	b.giveUp(time.Now().Add(absentGrace + time.Minute))
	for _, object := range [][]string{object, {"example.com/license=5"}} {
		if got, want := b.counted(object...), "example.com/card=0 example.com/license=5"; got != want {
			t.Errorf("after the plugin was given up: %s, want %s", got, want)
		}
	}
	if b.Wants(podOf("one", "app 1")) {
		t.Error("a pod waits for a plugin that was given up")
	}
}

// A container goes on with the devices of a plugin that was given up, also when its pod is asked
// about again.
func TestCountedResourcesOfContainers(t *testing.T) {
	b := start(t, shortDir(t))
	p := b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a", "b", "c")})
	b.give(podOf("one", "-setup 2", "app 2"))
	p.Stop()
	env.Eventually(t, "the plugin's end", func() error { return b.count(card, 3, 0) })
	b.giveUp(time.Now().Add(absentGrace + time.Minute))
	if got, want := b.counted("example.com/card=1"), "example.com/card=2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A machine is fresh until it has registered, and not again afterwards.
func TestFreshMachine(t *testing.T) {
	dir := shortDir(t)
	b := start(t, dir)
	if !b.Fresh() {
		t.Error("a machine without a checkpoint file is not fresh")
	}
	b.Registered()
	if b.Fresh() {
		t.Error("a registered machine is fresh")
	}
	b.stop()
	if b = start(t, dir); b.Fresh() {
		t.Error("a registered machine is fresh after a restart of the agent")
	}
	b.stop()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if b = start(t, dir); !b.Fresh() {
		t.Error("a machine that was set up anew is not fresh")
	}
}
