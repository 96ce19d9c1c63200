package main

import (
	"regexp"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestDebugSpec(t *testing.T) {
	for _, name := range profiles() {
		o := &debugOptions{image: "tools", target: "main", profile: name, env: []string{"A=1", "B="}}
		o.container, o.stdin, o.tty = "d", true, true
		c, err := o.spec([]string{"sh"})
		if err != nil {
			t.Fatal(err)
		}
		if c.Name != "d" || c.Image != "tools" || c.TargetContainerName != "main" || !c.Stdin || !c.TTY ||
			len(c.Env) != 2 || c.Env[1] != (v1.EnvVar{Name: "B"}) || c.Command[0] != "sh" {
			t.Errorf("%s: %+v", name, c)
		}
		privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
		if privileged != (name == profileSysAdmin) || (c.SecurityContext == nil) != (name == profileBaseline) {
			t.Errorf("%s: %+v", name, c.SecurityContext)
		}
	}
}

func TestDebugNames(t *testing.T) {
	pattern := regexp.MustCompile(`^debugger-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	seen := map[string]bool{}
	for range 50 {
		name := newDebugName()
		if !pattern.MatchString(name) {
			t.Fatalf("name %q", name)
		}
		seen[name] = true
	}
	if len(seen) < 45 {
		t.Errorf("%d names in 50", len(seen))
	}
}
