//go:build cluster

package test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestKubectl uses kubectl's verbs that need no pod to run, each in a part of its own with objects
// of its own. TestBundledKubectl in test/cluster of the agent's module has those that do.
func TestKubectl(t *testing.T) {
	s := start(t)
	s.eventually(t, "default", "get", "serviceaccount", "default", "-o", "jsonpath={.metadata.name}")
	for _, part := range []struct {
		name string
		run  func(*testing.T, *server)
	}{
		{"create", creates},
		{"create token", createsTokens},
		{"apply", applies},
		{"apply server-side", appliesServerSide},
		{"dry-run and diff", dryRuns},
		{"get", gets},
		{"get watch", watches},
		{"describe and events", describes},
		{"edit", edits},
		{"patch", patches},
		{"label and annotate", labels},
		{"replace and set", replaces},
		{"delete with grace", deletesWithGrace},
		{"wait", waits},
		{"explain", explains},
		{"auth", asksForRights},
		{"api-resources", listsResources},
		{"cordon and drain", drains},
		{"taint", taints},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, s) })
	}
}

// prints fails the test unless kubectl prints every one of these texts.
func (s *server) prints(t *testing.T, texts []string, args ...string) {
	t.Helper()
	out := s.kubectl(t, args...)
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("kubectl %s: %q is not in\n%s", strings.Join(args, " "), text, out)
		}
	}
}

// refuses fails the test unless kubectl fails and complains with that text.
func (s *server) refuses(t *testing.T, text, stdin string, args ...string) {
	t.Helper()
	if out, err := s.as("admin", stdin, args...); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("kubectl %s: %v %s; want it refused with %q", strings.Join(args, " "), err, out, text)
	}
}

func creates(t *testing.T, s *server) {
	s.kubectl(t, "create", "namespace", "made")
	for _, c := range []struct{ args, read, want string }{
		{"configmap c --from-literal=k=v", "configmap c -o jsonpath={.data.k}", "v"},
		{"secret generic s --from-literal=k=v", "secret s -o jsonpath={.data.k}", "dg=="},
		{
			"secret docker-registry r --docker-server=r.example --docker-username=u --docker-password=p",
			"secret r -o jsonpath={.type}", "kubernetes.io/dockerconfigjson",
		},
		{"serviceaccount a", "serviceaccount a -o jsonpath={.metadata.name}", "a"},
		{"role reader --verb=get,list --resource=pods", "role reader -o jsonpath={.rules[0].verbs}", `["get","list"]`},
		{"rolebinding b --role=reader --serviceaccount=made:a", "rolebinding b -o jsonpath={.subjects[0].name}", "a"},
		{"clusterrole wide --verb=get --resource=nodes", "clusterrole wide -o jsonpath={.rules[0].resources}", `["nodes"]`},
		{
			"clusterrolebinding wide --clusterrole=wide --user=u", "clusterrolebinding wide -o jsonpath={.roleRef.name}",
			"wide",
		},
		{"quota q --hard=pods=2", "quota q -o jsonpath={.spec.hard.pods}", "2"},
		{"priorityclass high --value=1000", "priorityclass high -o jsonpath={.value}", "1000"},
		{"poddisruptionbudget p --selector=a=b --min-available=1", "pdb p -o jsonpath={.spec.minAvailable}", "1"},
		{"service clusterip web --tcp=80:8080", "service web -o jsonpath={.spec.ports[0].targetPort}", "8080"},
		{"ingress i --rule=a.example/*=web:80", "ingress i -o jsonpath={.spec.rules[0].host}", "a.example"},
	} {
		s.kubectl(t, append([]string{"-n", "made", "create"}, strings.Fields(c.args)...)...)
		if out := s.kubectl(t, append([]string{"-n", "made", "get"}, strings.Fields(c.read)...)...); out != c.want {
			t.Errorf("kubectl create %s makes %q, want %q", c.args, out, c.want)
		}
	}
	s.refuses(t, "AlreadyExists", "", "create", "namespace", "made")
	s.refuses(t, "Invalid value", "", "create", "namespace", "Not_A_Name")
	if name := s.generated(t); !strings.HasPrefix(name, "configmap/gen-") || len(name) != len("configmap/gen-12345") {
		t.Errorf("generateName makes %q", name)
	}
}

// generated creates an object whose name the server chooses.
func (s *server) generated(t *testing.T) string {
	t.Helper()
	out, err := s.as("admin", "{apiVersion: v1, kind: ConfigMap, metadata: {generateName: gen-}}", "create", "-f", "-",
		"-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func createsTokens(t *testing.T, s *server) {
	token := s.kubectl(t, "create", "token", "default", "--audience=vault", "--duration=20m")
	claims := struct {
		Audiences []string `json:"aud"`
		Begin     int64    `json:"nbf"`
		End       int64    `json:"exp"`
		Subject   string   `json:"sub"`
	}{}
	if err := json.Unmarshal(tokenClaims(t, token), &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Subject != "system:serviceaccount:default:default" || claims.End-claims.Begin != 20*60 ||
		len(claims.Audiences) != 1 || claims.Audiences[0] != "vault" {
		t.Errorf("the token says %+v", claims)
	}
	s.refuses(t, "may not specify a duration less than 10 minutes", "", "create", "token", "default", "--duration=1m")
}

const applied = `
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME}
data: {a: "1", b: "1"}
`

func applies(t *testing.T, s *server) {
	manifest := strings.Replace(applied, "NAME", "applied", 1)
	for _, c := range []struct{ manifest, want string }{
		{manifest, "configmap/applied created"},
		{manifest, "configmap/applied unchanged"},
		{strings.Replace(manifest, `, b: "1"`, "", 1), "configmap/applied configured"},
	} {
		if out, err := s.as("admin", c.manifest, "apply", "-f", "-"); err != nil || out != c.want {
			t.Errorf("%q, %v; want %q", out, err, c.want)
		}
	}
	if out := s.kubectl(t, "get", "configmap", "applied", "-o", "jsonpath={.data}"); out != `{"a":"1"}` {
		t.Errorf("the field that is no longer applied: %s", out)
	}
	s.refuses(t, `unknown field "dada"`, strings.Replace(manifest, "\ndata:", "\ndada:", 1), "apply", "-f", "-")
}

func appliesServerSide(t *testing.T, s *server) {
	manifest := strings.Replace(applied, "NAME", "serverside", 1)
	apply := func(text, manager string, flags ...string) (string, error) {
		return s.as("admin", text, append([]string{
			"apply", "--server-side", "--field-manager", manager, "-f", "-",
		}, flags...)...)
	}
	if out, err := apply(manifest, "one"); err != nil || out != "configmap/serverside serverside-applied" {
		t.Fatalf("%q, %v", out, err)
	}
	other := strings.Replace(manifest, `a: "1", b: "1"`, `a: "2"`, 1)
	if _, err := apply(other, "two"); err == nil || !strings.Contains(err.Error(), `conflict with "one": .data.a`) {
		t.Errorf("a field of another manager: %v", err)
	}
	if _, err := apply(other, "two", "--force-conflicts"); err != nil {
		t.Error(err)
	}
	// The first manager gives up both fields: one has a new owner and stays.
	if _, err := apply(strings.Replace(manifest, `data: {a: "1", b: "1"}`, "", 1), "one"); err != nil {
		t.Error(err)
	}
	if out := s.kubectl(t, "get", "configmap", "serverside", "-o", "jsonpath={.data}"); out != `{"a":"2"}` {
		t.Errorf("the fields are %s", out)
	}
	s.prints(t, []string{"managedFields:", "manager: two", "operation: Apply"}, "get", "configmap", "serverside", "-o",
		"yaml", "--show-managed-fields")
}

func dryRuns(t *testing.T, s *server) {
	manifest := strings.Replace(applied, "NAME", "dry", 1)
	out, err := s.as("admin", manifest, "apply", "--dry-run=server", "-f", "-", "-o", "jsonpath={.metadata.uid}")
	if err != nil || out == "" {
		t.Errorf("dry run: %q, %v", out, err)
	}
	if out := s.kubectl(t, "get", "configmap", "dry", "--ignore-not-found"); out != "" {
		t.Errorf("a dry run makes %s", out)
	}
	s.apply(t, manifest)
	var exit *exec.ExitError
	out, err = s.as("admin", strings.Replace(manifest, `a: "1"`, `a: "9"`, 1), "diff", "-f", "-")
	if !asExit(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, `+  a: "9"`) {
		t.Errorf("diff: %v\n%s", err, out)
	}
}

func gets(t *testing.T, s *server) {
	for _, name := range []string{"b", "a", "c"} {
		s.kubectl(t, "create", "configmap", "got-"+name, "--from-literal=k="+name)
		s.kubectl(t, "label", "configmap", "got-"+name, "set=got", "name="+name)
	}
	get := func(args ...string) []string { return append([]string{"get", "configmaps", "-l", "set=got"}, args...) }
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"-o", "name"}, "configmap/got-a\nconfigmap/got-b\nconfigmap/got-c"},
		{[]string{"-o", "name", "--chunk-size=1"}, "configmap/got-a\nconfigmap/got-b\nconfigmap/got-c"},
		{[]string{"-o", "jsonpath={.items[*].data.k}"}, "a b c"},
		{[]string{"-o", `go-template={{range .items}}{{.data.k}}{{end}}`}, "abc"},
		{[]string{"-o", "custom-columns=K:.data.k", "--sort-by=.data.k"}, "K\na\nb\nc"},
		{[]string{"-o", "name", "--field-selector=metadata.name=got-b"}, "configmap/got-b"},
		{[]string{"-o", "name", "-l", "set=got,name notin (a,b)"}, "configmap/got-c"},
	} {
		if out := s.kubectl(t, get(c.flags...)...); out != c.want {
			t.Errorf("kubectl get %v prints %q, want %q", c.flags, out, c.want)
		}
	}
	s.prints(t, []string{"NAME", "DATA", "AGE", "LABELS", "got-a   1", "name=a,set=got"}, get("--show-labels")...)
	s.prints(t, []string{"NAMESPACE", "default"}, get("-A", "-o", "wide")...)
	s.prints(t, []string{"kind: List", "k: a"}, get("-o", "yaml")...)
	list := struct {
		Items []struct{ Data map[string]string }
	}{}
	if err := json.Unmarshal([]byte(s.kubectl(t, get("-o", "json")...)), &list); err != nil ||
		len(list.Items) != 3 || list.Items[2].Data["k"] != "c" {
		t.Errorf("as JSON: %v, %v", list, err)
	}
	s.refuses(t, "NotFound", "", "get", "configmap", "nobody")
	s.prints(t, []string{`"major": "1"`}, "get", "--raw", "/version")
}

// watches follows a list, and sees an object come, change and go.
func watches(t *testing.T, s *server) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, kubectl, "--kubeconfig", s.file("admin.kubeconfig"), "get", "configmaps", "-l",
		"watched=yes", "--watch", "--output-watch-events", "--no-headers")
	cmd.Env = append(os.Environ(), "HOME="+s.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	const manifest = `{apiVersion: v1, kind: ConfigMap, metadata: {name: watched, labels: {watched: "yes"}}, data: {%s}}`
	for _, step := range []struct {
		event string
		do    func()
	}{
		{"ADDED", func() { s.apply(t, fmt.Sprintf(manifest, "a: b")) }},
		{"MODIFIED", func() { s.apply(t, fmt.Sprintf(manifest, "a: c")) }},
		{"DELETED", func() { s.kubectl(t, "delete", "configmap", "watched") }},
	} {
		step.do()
		if !lines.Scan() || strings.Fields(lines.Text())[0] != step.event ||
			strings.Fields(lines.Text())[1] != "watched" {
			t.Fatalf("it prints %q (%v), want %s", lines.Text(), lines.Err(), step.event)
		}
	}
	cancel()
	_ = cmd.Wait()
}

// tokenClaims returns what a token says: the second of its three parts.
func tokenClaims(t *testing.T, token string) []byte {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%d parts of a token", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// describes looks at a pod that has no node to run on, and its events.
func describes(t *testing.T, s *server) {
	s.apply(t, strings.ReplaceAll(podManifest, "NAME", "unplaced"))
	s.await(t, "the scheduler says why", func() error {
		out, err := s.as("admin", "", "describe", "pod", "unplaced")
		for _, want := range []string{
			"Status:           Pending", "PodScheduled   False", "FailedScheduling",
			"no nodes available to schedule pods", "kube-api-access",
		} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("%q is not in it: %w\n%s", want, err, out)
			}
		}
		return nil
	})
	s.prints(t, []string{"Warning", "FailedScheduling", "Pod/unplaced"}, "events", "--for",
		"pod/unplaced")
	s.prints(t, []string{"FailedScheduling"}, "get", "events", "--field-selector", "involvedObject.name=unplaced")
	s.kubectl(t, "delete", "pod", "unplaced", "--force")
	s.prints(t, []string{"Status:       Active"}, "describe", "namespace", "default")
}
