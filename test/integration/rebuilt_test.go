//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

const rebuiltImage = "berth.local/rebuilt:v1"

// rebuilt is a pod of an image that comes from an archive alone.
const rebuilt = `apiVersion: v1
kind: Pod
metadata: {name: app}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "` + rebuiltImage + `", imagePullPolicy: IfNotPresent}]
`

// TestRebuiltArchive replaces an archive while a pod runs its image, as somebody does who builds
// the image again. The pod keeps the old image until it is restarted, and then the old one can go.
func TestRebuiltArchive(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := env.Containerd(t, env.Options{Version: version})
			dir := t.TempDir()
			build := func(content string) {
				t.Helper()
				program, err := os.ReadFile("/bin/busybox")
				if err != nil {
					t.Fatal(err)
				}
				image := images.Image{Name: rebuiltImage, Files: []images.File{
					{Path: "/busybox", Mode: 0o755, Body: program}, {Path: "/version", Mode: 0o644, Body: []byte(content)},
				}}
				image.Config.Entrypoint = []string{"/busybox", "sleep", "1000000"}
				if err := images.Write(filepath.Join(dir, "app.tar"), image); err != nil {
					t.Fatal(err)
				}
			}
			a := e.StartAgent(t, env.AgentOptions{
				Kubelet: "imageMinimumGCAge: 1ms", Berth: "imagesDir: " + dir,
			})
			a.WaitUp(t)
			build("one")
			a.WriteManifest(t, "app.yaml", rebuilt)
			a.WaitReady(t, "app")
			cli := func(args ...string) string {
				t.Helper()
				out, errOut, code := a.CLI(args...)
				if code != 0 {
					t.Fatalf("berth %v: code %d: %s", args, code, errOut)
				}
				return out
			}
			runs := func() string { return cli("exec", "app-node", "--", "/busybox", "cat", "/version") }
			inStore := func() []string {
				t.Helper()
				var list api.Images
				if err := json.Unmarshal([]byte(cli("images", "-o", "json")), &list); err != nil {
					t.Fatal(err)
				}
				var ids []string
				for _, image := range list.Items {
					if slices.Contains(image.Tags, rebuiltImage) || len(image.Tags) == 0 {
						ids = append(ids, image.ID)
					}
				}
				return ids
			}
			first := inStore()
			if len(first) != 1 {
				t.Fatalf("images %q", first)
			}
			build("two")
			env.Eventually(t, "the new image has come", func() error {
				if ids := inStore(); len(ids) != 2 {
					return fmt.Errorf("images %q", ids)
				}
				return nil
			})
			const why = "container main of pod default/app-node has it"
			if _, errOut, code := a.CLI("rmi", first[0]); code != 1 || !strings.Contains(errOut, why) {
				t.Errorf("removing what runs: code %d: %s", code, errOut)
			}
			if got := runs(); got != "one" {
				t.Errorf("the pod runs %q", got)
			}
			for range 2 { // the last ended container of a pod stays, too
				cli("restart", "app-node")
				env.Eventually(t, "the pod runs the new image", func() error {
					out, errOut, _ := a.CLI("exec", "app-node", "--", "/busybox", "cat", "/version")
					if out != "two" {
						return fmt.Errorf("it runs %q %s", out, errOut)
					}
					return nil
				})
			}
			env.Eventually(t, "the old image goes", func() error {
				cli("images", "prune")
				if ids := inStore(); len(ids) != 1 || ids[0] == first[0] {
					return fmt.Errorf("images %q", ids)
				}
				return nil
			})
		})
	}
}
