package records

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/agent/images/credentials"
)

const (
	preloaded = kubeletconfigv1beta1.NeverVerifyPreloadedImages
	imageID   = "sha256:0123"
)

// node is a store in a directory of the test's own.
type node struct {
	*testing.T
	*Store
	root    string
	log     *bytes.Buffer
	account credentials.Source // of the pod that asks
}

func newNode(
	t *testing.T, kind kubeletconfigv1beta1.ImagePullCredentialsVerificationPolicy, allowlist ...string,
) *node {
	t.Helper()
	n := &node{T: t, root: t.TempDir(), log: &bytes.Buffer{}}
	n.restart(kind, allowlist...)
	return n
}

// restart makes the store again, as another run of the agent does.
func (n *node) restart(kind kubeletconfigv1beta1.ImagePullCredentialsVerificationPolicy, allowlist ...string) {
	n.Helper()
	policy, err := NewPolicy(kind, allowlist)
	if err != nil {
		n.Fatal(err)
	}
	n.Store = New(n.root, policy, slog.New(slog.NewTextHandler(n.log, nil)))
}

// pull records a pull from begin to end.
func (n *node) pull(image, id string, by ...credentials.Credential) {
	n.Helper()
	if err := n.Begin(image); err != nil {
		n.Fatal(err)
	}
	if len(by) == 0 {
		by = []credentials.Credential{{}}
	}
	var uses []Use
	for _, c := range by {
		uses = append(uses, Use{Image: image, Credential: c})
	}
	if err := n.Pulled(image, id, uses); err != nil {
		n.Fatal(err)
	}
}

func (n *node) wantAllowed(want bool, image string, own ...credentials.Credential) {
	n.Helper()
	pod := Pod{Own: own, Account: func() credentials.Source { return n.account }}
	if got := n.Allowed(image, imageID, pod); got != want {
		n.Errorf("%s is allowed: %t, want %t", image, got, want)
	}
}

// files returns the names of the files in a directory of the records.
func (n *node) files(dir string) []string {
	n.Helper()
	entries, err := os.ReadDir(filepath.Join(n.root, "image_manager", dir))
	if err != nil && !os.IsNotExist(err) {
		n.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// login is a Secret's credential.
func login(name, uid, password string) credentials.Credential {
	return credentials.Credential{
		Username: credentials.NewSecret("user"), Password: credentials.NewSecret(password),
		Source: credentials.Source{UID: uid, Namespace: "ns", Name: name},
	}
}

func TestFilesAreTheKubelets(t *testing.T) {
	n := newNode(t, preloaded)
	if err := n.Begin("busybox:1"); err != nil {
		t.Fatal(err)
	}
	// sha256 of "busybox:1".
	const intent = "sha256-765f875080a9220ec3186dfc31b67b030c07e570665ba0e000bb9d17d5481cd5"
	if got := n.files("pulling"); len(got) != 1 || got[0] != intent {
		t.Fatalf("intents are %v", got)
	}
	data, err := os.ReadFile(filepath.Join(n.root, "image_manager", "pulling", intent))
	if err != nil ||
		string(data) != `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"busybox:1"}`+
			"\n" {
		t.Errorf("the intent is %s, %v", data, err)
	}
	if err := n.Pulled("busybox:1", imageID, []Use{
		{Image: "busybox:1", Credential: login("b", "2", "p")},
		{Image: "docker.io/busybox:1@sha256:" + strings.Repeat("0", 64), Credential: login("a", "1", "p")},
		{Image: "busybox:1", Credential: login("a", "1", "p")},
	}); err != nil {
		t.Fatal(err)
	}
	if got := n.files("pulling"); len(got) != 0 {
		t.Errorf("intents are %v after the pull", got)
	}
	data, err = os.ReadFile(filepath.Join(n.root, "image_manager", "pulled", fileName(imageID)))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "lastUpdatedTime")
	hash := login("", "", "p").Hash()
	want := map[string]any{
		"kind": "ImagePulledRecord", "apiVersion": "kubelet.config.k8s.io/v1beta1", "imageRef": imageID,
		"credentialMapping": map[string]any{
			"busybox": map[string]any{"kubernetesSecrets": []any{
				map[string]any{"uid": "1", "namespace": "ns", "name": "a", "credentialHash": hash},
				map[string]any{"uid": "2", "namespace": "ns", "name": "b", "credentialHash": hash},
			}},
			"docker.io/busybox": map[string]any{"kubernetesSecrets": []any{
				map[string]any{"uid": "1", "namespace": "ns", "name": "a", "credentialHash": hash},
			}},
		},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the record is %v\nwant %v", got, want)
	}
	for _, dir := range []string{"pulling", "pulled"} {
		if info, err := os.Stat(filepath.Join(n.root, "image_manager", dir)); err != nil ||
			info.Mode().Perm() != 0o700 {
			t.Errorf("%s is %v, %v", dir, info, err)
		}
	}
}

func TestKubeletsRecordsAreRead(t *testing.T) {
	n := newNode(t, preloaded)
	for _, version := range []string{"v1alpha1", "v1beta1", "v1"} {
		dir := filepath.Join(n.root, "image_manager", "pulled")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		text := `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/` + version +
			`","lastUpdatedTime":"2026-01-01T00:00:00Z","imageRef":"` + imageID + `",
			"credentialMapping":{"r.io/a":{"kubernetesSecrets":[{"uid":"1","namespace":"ns","name":"a",
				"credentialHash":"` + login("", "", "p").Hash() + `"}]}}}`
		if err := os.WriteFile(filepath.Join(dir, fileName(imageID)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n.wantAllowed(version != "v1", "r.io/a:v1", login("x", "", "p"))
		n.wantAllowed(false, "r.io/a:v1", login("x", "", "q"))
	}
	if !strings.Contains(n.log.String(), "Could not read who may use an image") {
		t.Errorf("the log says: %s", n.log)
	}
}

func TestWhoMayUseAnImage(t *testing.T) {
	mine, other := login("mine", "1", "p"), login("other", "2", "q")
	for name, tc := range map[string]struct {
		by   []credentials.Credential // who pulled r.io/a:v1
		own  []credentials.Credential
		of   string // the image that is asked for; empty means r.io/a:v1
		want bool
	}{
		"same Secret": {
			by:   []credentials.Credential{mine},
			own:  []credentials.Credential{mine},
			want: true,
		},
		"no Secret":      {by: []credentials.Credential{mine}},
		"another Secret": {by: []credentials.Credential{mine}, own: []credentials.Credential{other}},
		"one of its own": {
			by:   []credentials.Credential{mine},
			own:  []credentials.Credential{other, mine},
			want: true,
		},
		"one of several": {
			by:   []credentials.Credential{mine, other},
			own:  []credentials.Credential{other},
			want: true,
		},
		"same content": {
			by:   []credentials.Credential{mine},
			own:  []credentials.Credential{login("else", "9", "p")},
			want: true,
		},
		"Secret was changed": {
			by:   []credentials.Credential{mine},
			own:  []credentials.Credential{login("mine", "1", "new")},
			want: true,
		},
		"Secret is another now": {
			by: []credentials.Credential{mine}, own: []credentials.Credential{login("mine", "3", "new")},
		},
		"local Secret was changed": {
			by: []credentials.Credential{login("l", "", "p")}, own: []credentials.Credential{login("l", "", "new")},
		},
		"node's credentials": {
			by: []credentials.Credential{{Username: credentials.NewSecret("u")}}, want: true,
		},
		"no credentials":         {by: []credentials.Credential{{}}, want: true},
		"Secret, then everybody": {by: []credentials.Credential{mine, {}}, want: true},
		"everybody, then Secret": {by: []credentials.Credential{{}, mine}, want: true},
		"another tag": {
			by:   []credentials.Credential{mine},
			own:  []credentials.Credential{mine},
			of:   "r.io/a:v2",
			want: true,
		},
		"by digest": {
			by:   []credentials.Credential{mine},
			own:  []credentials.Credential{mine},
			of:   "r.io/a@sha256:" + strings.Repeat("0", 64),
			want: true,
		},
		"another name of the image": {by: []credentials.Credential{{}}, of: "r.io/b:v1"},
		"another registry": {
			by:  []credentials.Credential{mine},
			own: []credentials.Credential{mine},
			of:  "s.io/a:v1",
		},
		"a name that cannot be read": {by: []credentials.Credential{{}}, of: "R.io/A"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, preloaded)
			n.pull("r.io/a:v1", imageID, tc.by...)
			if tc.of == "" {
				tc.of = "r.io/a:v1"
			}
			n.wantAllowed(tc.want, tc.of, tc.own...)
			n.restart(preloaded)
			n.wantAllowed(tc.want, tc.of, tc.own...)
			n.pull("r.io/a:v1", "sha256:other")
			n.wantAllowed(tc.want, tc.of, tc.own...) // another image has the tag now
		})
	}
}

func TestShortAndLongNamesAreOne(t *testing.T) {
	n := newNode(t, preloaded)
	n.pull("busybox:1", imageID)
	n.wantAllowed(true, "docker.io/library/busybox:1")
	n.wantAllowed(true, "docker.io/busybox")
	n.wantAllowed(false, "r.io/library/busybox:1")
}

func TestPolicies(t *testing.T) {
	const image, list = "r.io/a:v1", kubeletconfigv1beta1.NeverVerifyAllowlistedImages
	mine := login("mine", "1", "p")
	for _, tc := range []struct {
		kind      kubeletconfigv1beta1.ImagePullCredentialsVerificationPolicy
		allowlist []string
		state     string // none, pulling, pulled
		want      bool
	}{
		{preloaded, nil, "none", true},
		{preloaded, nil, "pulling", false},
		{preloaded, nil, "pulled", false},
		{kubeletconfigv1beta1.NeverVerify, nil, "none", true},
		{kubeletconfigv1beta1.NeverVerify, nil, "pulling", true},
		{kubeletconfigv1beta1.NeverVerify, nil, "pulled", true},
		{kubeletconfigv1beta1.AlwaysVerify, nil, "none", false},
		{kubeletconfigv1beta1.AlwaysVerify, nil, "pulled", false},
		{list, nil, "none", false},
		{list, []string{"r.io/a"}, "none", true},
		{list, []string{"r.io/a"}, "pulled", true},
		{list, []string{"r.io/ab"}, "none", false},
		{list, []string{"r.io/*"}, "none", true},
		{list, []string{"s.io", "r.io/a/*"}, "none", false},
	} {
		t.Run(fmt.Sprint(tc.kind, tc.allowlist, tc.state), func(t *testing.T) {
			n := newNode(t, tc.kind, tc.allowlist...)
			switch tc.state {
			case "pulling":
				if err := n.Begin(image); err != nil {
					t.Fatal(err)
				}
			case "pulled":
				n.pull(image, imageID, mine)
			}
			n.wantAllowed(tc.want, image)
			if tc.state == "pulled" {
				n.wantAllowed(true, image, mine)
			}
		})
	}
	for _, bad := range []string{
		"", " r.io/a", "r.io/a ", "*", "/*", "r.io/a*", "r.io/*/a", "*.io/*", "r.io/a:v1", "r.io/A",
		"r.io/a@sha256:" + strings.Repeat("0", 64),
	} {
		if _, err := NewPolicy(list, []string{"r.io/a", bad}); err == nil ||
			!strings.Contains(err.Error(), "preloadedImagesVerificationAllowlist[1]") {
			t.Errorf("%q: error is %v", bad, err)
		}
	}
	if _, err := NewPolicy("Sometimes", nil); err == nil {
		t.Error("an unknown policy is taken")
	}
}

// TestDeathInTheMiddle ends the agent at each point of a pull. An image that came by a pull never
// counts as preloaded.
func TestDeathInTheMiddle(t *testing.T) {
	const image = "busybox:1"
	there := []*runtimeapi.Image{
		{Id: imageID, RepoTags: []string{"docker.io/library/busybox:1"}},
		{Id: "sha256:other", RepoTags: []string{"r.io/b:1"}},
	}
	mine := login("mine", "1", "p")

	n := newNode(t, preloaded)
	if err := n.Begin(image); err != nil {
		t.Fatal(err)
	}
	n.restart(preloaded) // the image has come, but the record was not written
	n.wantAllowed(false, image)
	n.wantAllowed(false, "docker.io/library/busybox:1")
	n.Adopt(nil)
	n.wantAllowed(false, image)
	if len(n.files("pulling")) != 1 {
		t.Error("the intent of an image that is not there is gone")
	}
	n.Adopt(there)
	n.wantAllowed(false, image, mine)
	if len(n.files("pulling")) != 0 || len(n.files("pulled")) != 1 {
		t.Errorf("files are %v and %v", n.files("pulling"), n.files("pulled"))
	}
	n.restart(preloaded)
	n.Adopt(there)
	n.wantAllowed(false, image, mine)
	n.pull(image, imageID, mine)
	n.wantAllowed(true, image, mine)

	// An existing record is left as it is.
	if err := n.Begin(image); err != nil {
		t.Fatal(err)
	}
	n.restart(preloaded)
	n.Adopt(there)
	n.wantAllowed(true, image, mine)

	// A pull that failed after a restart leaves nothing.
	if err := n.Begin("r.io/c:1"); err != nil {
		t.Fatal(err)
	}
	n.restart(preloaded)
	if err := n.Begin("r.io/c:1"); err != nil {
		t.Fatal(err)
	}
	n.Failed("r.io/c:1")
	if len(n.files("pulling")) != 0 {
		t.Errorf("intents are %v", n.files("pulling"))
	}
}

func TestSeveralPullsOfOneImage(t *testing.T) {
	n := newNode(t, preloaded)
	for range 2 {
		if err := n.Begin("r.io/a:1"); err != nil {
			t.Fatal(err)
		}
	}
	n.Failed("r.io/a:1")
	n.wantAllowed(false, "r.io/a:1")
	n.Failed("r.io/a:1")
	n.wantAllowed(true, "r.io/a:1") // nobody pulled it: it was there
	if len(n.files("pulling")) != 0 {
		t.Errorf("intents are %v", n.files("pulling"))
	}
}

func TestRecordsThatCannotBeWritten(t *testing.T) {
	n := newNode(t, preloaded)
	if err := n.Begin("r.io/a:1"); err != nil {
		t.Fatal(err)
	}
	pulled := filepath.Join(n.root, "image_manager", "pulled")
	if err := os.WriteFile(pulled, nil, 0o600); err != nil { // a file where the directory must be
		t.Fatal(err)
	}
	if err := n.Pulled("r.io/a:1", imageID, []Use{{Image: "r.io/a:1"}}); err == nil {
		t.Error("a record that cannot be written is taken for written")
	}
	n.wantAllowed(false, "r.io/a:1")
	if err := os.Remove(pulled); err != nil {
		t.Fatal(err)
	}
	n.wantAllowed(false, "r.io/a:1")
	n.pull("r.io/a:1", imageID)
	n.wantAllowed(true, "r.io/a:1")
	if len(n.files("pulling")) != 0 {
		t.Errorf("intents are %v", n.files("pulling"))
	}

	pulling := filepath.Join(n.root, "image_manager", "pulling")
	if err := os.Remove(pulling); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pulling, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Begin("r.io/b:1"); err == nil {
		t.Error("a pull that cannot be noted may begin")
	}
}

func TestGarbageInTheDirectories(t *testing.T) {
	n := newNode(t, preloaded)
	n.pull("r.io/a:1", imageID)
	for path, text := range map[string]string{
		filepath.Join("pulled", fileName(imageID)):     "{",
		filepath.Join("pulling", fileName("x")):        "null",
		filepath.Join("pulling", fileName("y")):        `{"kind":"ImagePullIntent","apiVersion":"v9","image":"y"}`,
		filepath.Join("pulling", "README"):             "hello",
		filepath.Join("pulling", fileName("z")+".tmp"): "half",
	} {
		if err := os.WriteFile(filepath.Join(n.root, "image_manager", path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.restart(preloaded)
	n.Adopt(nil)
	n.wantAllowed(false, "r.io/a:1")
	n.pull("r.io/a:1", imageID)
	n.wantAllowed(true, "r.io/a:1")
}

func TestManyAtOnce(t *testing.T) {
	n := newNode(t, preloaded)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			image := fmt.Sprintf("r.io/a:%d", i%5)
			c := login(fmt.Sprint("s", i), fmt.Sprint(i), fmt.Sprint("password", i))
			if err := n.Begin(image); err != nil {
				t.Error(err)
			}
			if err := n.Pulled(image, imageID, []Use{{Image: image, Credential: c}}); err != nil {
				t.Error(err)
			}
			n.wantAllowed(true, image, c)
		})
	}
	wg.Wait()
	n.wantAllowed(false, "r.io/a:1", login("x", "x", "x"))
	if len(n.files("pulling")) != 0 || len(n.files("pulled")) != 1 {
		t.Errorf("files are %v and %v", n.files("pulling"), n.files("pulled"))
	}
}

// An image that was pulled with a service account's credentials is for pods of that account.
func TestServiceAccounts(t *testing.T) {
	one := credentials.Source{UID: "u1", Namespace: "ns", Name: "one", Account: true}
	two := credentials.Source{UID: "u2", Namespace: "ns", Name: "two", Account: true}
	anew := credentials.Source{UID: "u3", Namespace: "ns", Name: "one", Account: true}
	n := newNode(t, preloaded)
	image := "r.io/a:1"
	n.pull(image, imageID, credentials.Credential{Source: two}, credentials.Credential{Source: one},
		credentials.Credential{Source: one})
	for range 2 {
		for _, tc := range []struct {
			account credentials.Source
			want    bool
		}{
			{one, true},
			{two, true},
			{anew, false},
			{credentials.Source{}, false},
			{credentials.Source{UID: "u1", Namespace: "ns", Name: "two", Account: true}, false},
		} {
			n.account = tc.account
			n.wantAllowed(tc.want, image)
		}
		n.account = credentials.Source{}
		n.wantAllowed(false, image, login("one", "u1", "p")) // a Secret of that name is none
		n.restart(preloaded)
	}
	data, err := os.ReadFile(filepath.Join(n.root, "image_manager", "pulled", n.files("pulled")[0]))
	const want = `"r.io/a":{"kubernetesServiceAccounts":[{"uid":"u1","namespace":"ns","name":"one"},` +
		`{"uid":"u2","namespace":"ns","name":"two"}]}`
	if err != nil || !strings.Contains(string(data), want) {
		t.Errorf("the record is %s, %v", data, err)
	}
	n.pull(image, imageID) // and then without credentials
	n.wantAllowed(true, image)
}
