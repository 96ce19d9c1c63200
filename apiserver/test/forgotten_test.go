//go:build cluster

package test

import (
	"slices"
	"strings"
	"testing"
)

// TestWorkloadsOfADeletedNamespace deletes a namespace with a Deployment while the server does not
// serve Deployments, and makes it again: the Deployment must not come back, and others stay.
func TestWorkloadsOfADeletedNamespace(t *testing.T) {
	s := start(t, "--workloads")
	for _, namespace := range []string{"again", "stays"} {
		s.kubectl(t, "create", "namespace", namespace)
		s.kubectl(t, "-n", namespace, "create", "deployment", "web", "--image", "registry.example/web:1")
		s.eventually(t, "1", "-n", namespace, "get", "deployment", "web", "-o", "jsonpath={.status.replicas}")
	}
	s.stop(t)
	with := slices.Clone(s.args)
	s.args = slices.DeleteFunc(s.args, func(arg string) bool { return arg == "--workloads" })
	s.start(t)
	s.kubectl(t, "delete", "namespace", "again")
	s.kubectl(t, "create", "namespace", "again")
	s.stop(t)
	s.args = with
	s.start(t)
	all := s.kubectl(t, "get", "deployments,replicasets", "-A")
	if strings.Contains(all, "again") || strings.Count(all, "stays") != 2 {
		t.Errorf("after the namespace \"again\" was deleted there are\n%s", all)
	}
}
