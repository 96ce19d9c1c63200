package fields

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/images"
)

func TestPageIsFresh(t *testing.T) {
	root, err := images.Root()
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(filepath.Join(root, "configs", "podspec.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := Markdown(&want); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want.Bytes()) {
		t.Error("configs/podspec.md is out of date: go generate ./agent/pod/fields")
	}
	for _, f := range All() {
		if !f.Derived() && !strings.Contains(want.String(), "`"+f.Path+"`") {
			t.Errorf("the page has no %s", f.Path)
		}
	}
}

func TestSelect(t *testing.T) {
	paths := func(marks []Mark, roots ...string) string {
		var out []string
		for _, f := range Select(All(), marks, roots) {
			out = append(out, f.Path)
		}
		return strings.Join(out, " ")
	}
	const hosts = "spec.hostAliases spec.hostAliases[*] spec.hostAliases[*].ip spec.hostAliases[*].hostnames " +
		"spec.hostAliases[*].hostnames[*]"
	for _, root := range []string{
		"spec.hostAliases", "hostAliases", "spec.hostAliases[0]", "hostAliases.", "hostAliases[*]",
	} {
		if got := paths(nil, root); got != hosts {
			t.Errorf("%s: %s", root, got)
		}
	}
	got := paths([]Mark{Refused}, "spec.volumes[2].cinder.volumeID", "metadata.name")
	if got != "spec.volumes[*].cinder.volumeID" {
		t.Errorf("refused: %s", got)
	}
	if got := paths([]Mark{Works}, "sysctls.name"); got != "spec.securityContext.sysctls[*].name" {
		t.Errorf("a part's name: %s", got)
	}
	if got := paths(nil, "hos"); got != "" {
		t.Errorf("half a name: %s", got)
	}
	for name, want := range map[string]Mark{
		"works":       Works,
		"works-where": WorksWhere,
		"works where": WorksWhere,
		"no-effect":   NoEffect,
		"refused":     Refused,
	} {
		if got, err := ParseMark(name); got != want || err != nil {
			t.Errorf("mark %q is %q, %v", name, got, err)
		}
	}
	if _, err := ParseMark("good"); err == nil {
		t.Error("an unknown mark is one")
	}
}
