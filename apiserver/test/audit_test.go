//go:build cluster

package test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// auditPolicy has who did what with Secrets, without what is in them, and nothing of the server's
// own requests.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:apiserver"]}
- {level: Metadata, resources: [{group: "", resources: [secrets]}]}
- {level: None}
`

// encryption has Secrets encrypted before they are stored.
const encryption = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: one, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}]}
  - identity: {}
`

// TestAuditAndEncryption shows both, on request: who wrote a Secret is in the audit log, and what is
// in the Secret is neither there nor readable on the disk. A Secret from before can still be read.
func TestAuditAndEncryption(t *testing.T) {
	s := start(t, "--scheduler=false")
	s.kubectl(t, "create", "secret", "generic", "before", "--from-literal=k=written-in-clear")
	s.stop(t)
	log := filepath.Join(filepath.Dir(s.dir), "audit.log")
	s.args = append(s.args, "--audit-policy-file", s.write(t, "policy.yaml", auditPolicy), "--audit-log-path", log,
		"--encryption-provider-config", s.write(t, "encryption.yaml", encryption))
	s.start(t)
	s.kubectl(t, "create", "secret", "generic", "after", "--from-literal=k=written-in-cipher")
	for name, want := range map[string]string{"before": "d3JpdHRlbi1pbi1jbGVhcg==", "after": "d3JpdHRlbi1pbi1jaXBoZXI="} {
		if got := s.kubectl(t, "get", "secret", name, "-o", "jsonpath={.data.k}"); got != want {
			t.Errorf("the Secret %s has %q", name, got)
		}
	}
	s.stop(t)

	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the audit log: %v, %v", info, err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, r := range audited(t, text) {
		if r.ObjectRef.Resource != "secrets" {
			t.Errorf("it has more than Secrets: %+v", r)
		}
		found = found || r.Verb == "create" && r.User.Username == "kubernetes-admin" && r.ObjectRef.Name == "after"
	}
	if !found || bytes.Contains(text, []byte("d3JpdHRlb")) {
		t.Errorf("the audit log is\n%s", text)
	}
	clear := stored(t, s.file("etcd/member/snap/db"))
	if strings.Contains(clear, "written-in-cipher") || !strings.Contains(clear, "written-in-clear") ||
		!strings.Contains(clear, "k8s:enc:aescbc:v1:one:") {
		t.Error("what is stored is not encrypted as the configuration says")
	}
}

// auditedRequest is what the tests read of a line of the audit log.
type auditedRequest struct {
	Verb, RequestURI       string
	User, ImpersonatedUser struct{ Username string }
	ObjectRef              struct{ Resource, Subresource, Name string }
	ResponseStatus         struct{ Message string }
	Annotations            map[string]string
}

// who returns the user as whom the request was made.
func (r auditedRequest) who() string {
	if r.ImpersonatedUser.Username != "" {
		return r.ImpersonatedUser.Username
	}
	return r.User.Username
}

// audited returns what an audit log has.
func audited(t *testing.T, log []byte) []auditedRequest {
	t.Helper()
	var all []auditedRequest
	for line := range bytes.Lines(log) {
		var r auditedRequest
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, r)
	}
	return all
}

// stored returns all keys and values of a stopped server's store.
func stored(t *testing.T, path string) string {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var all strings.Builder
	if err := db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(_, value []byte) error {
			all.Write(value)
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}
