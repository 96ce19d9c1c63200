package source

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/pods"
)

// A UID names directories and cgroups: one that cannot is refused where it is read, not when the
// pod can no longer be removed.
func TestManifestUID(t *testing.T) {
	for uid, accepted := range map[string]bool{
		"0cd4bbf1-75ad-4f2c-9a86-2ee3a1b1a7c5": true,
		"web.1":                                true,
		"../../etc":                            false,
		"a/b":                                  false,
		"a_b":                                  false,
		"..":                                   false,
		".hidden":                              false,
		"a..b":                                 false,
		"ü":                                    false,
		strings.Repeat("a", uidLength):         true,
		strings.Repeat("a", uidLength+1):       false,
	} {
		manifest := fmt.Sprintf(
			"apiVersion: v1\nkind: Pod\nmetadata: {name: web, uid: %q}\nspec: {containers: [{name: c, image: i}]}\n",
			uid)
		items := Decoder{NodeName: "node"}.Decode("web.yaml", []byte(manifest))
		if len(items) != 1 {
			t.Fatalf("uid %q: %d items", uid, len(items))
		}
		v := items[0].Result
		if v.Accepted != accepted || !accepted && v.Field != "metadata.uid" {
			t.Errorf("uid %q: %+v", uid, v)
		}
	}
}

// The content of a manifest has a hash of its own if the manifest sets the UID and asks for a start
// when it changes. No other pod gets an annotation that a kubelet's pod does not have.
func TestContentHash(t *testing.T) {
	content := func(metadata, image string) string {
		p := podOf(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: web%s}, `+
			`spec: {containers: [{name: app, image: %s}]}}`, metadata, image))
		return p.Annotations[pods.AnnotationContent]
	}
	const uid, start = ", uid: u1", `, annotations: {berth.dev/start-when-changed: "true"}`
	const labels = ", labels: {a: b}"
	for _, metadata := range []string{"", uid, start, uid + `, annotations: {berth.dev/start-when-changed: "false"}`} {
		if got := content(metadata, "app"); got != "" {
			t.Errorf("web%s: %s", metadata, got)
		}
	}
	hash := content(uid+start, "app")
	if hash == "" || hash != content(uid+start, "app") || hash != content(", uid: u2"+start, "app") {
		t.Errorf("the same content has hash %q and others", hash)
	}
	if hash == content(uid+start, "other") || hash == content(uid+start+labels, "app") {
		t.Errorf("other content has the same hash %q", hash)
	}
}

// A manifest that is there wants its pod, also one that was saved while its pod was leaving.
func TestDeletionTimeOfAManifestIsDropped(t *testing.T) {
	p := podOf(t,
		`{apiVersion: v1, kind: Pod, metadata: {name: web, deletionTimestamp: "2026-01-01T00:00:00Z", `+
			`deletionGracePeriodSeconds: 5}, spec: {containers: [{name: app, image: app}]}}`)
	if p.DeletionTimestamp != nil || p.DeletionGracePeriodSeconds != nil {
		t.Errorf("leaving since %s, within %v seconds", p.DeletionTimestamp, p.DeletionGracePeriodSeconds)
	}
}
