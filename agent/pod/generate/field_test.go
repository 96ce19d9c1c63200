package generate

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestFieldValue(t *testing.T) {
	addrs := Addresses{HostIPs: []string{"192.0.2.1", "2001:db8::1"}, PodIPs: []string{"10.0.0.2", "fd00::2"}}
	tests := map[string]struct {
		path, version string
		addrs         *Addresses
		want, err     string
	}{
		"name":               {path: "metadata.name", want: "web"},
		"namespace":          {path: "metadata.namespace", version: "v1", want: "shop"},
		"uid":                {path: "metadata.uid", want: "u-1"},
		"labels":             {path: "metadata.labels", want: "app=\"web\"\ntier=\"front\""},
		"annotations":        {path: "metadata.annotations", want: "example.com/Team=\"a\\\"b\"\nnote=\"hello\""},
		"one label":          {path: "metadata.labels['tier']", want: "front"},
		"missing label":      {path: "metadata.labels['none']", want: ""},
		"one annotation":     {path: "metadata.annotations['example.com/Team']", want: "a\"b"},
		"bad label key":      {path: "metadata.labels['a b']", err: "invalid key subscript in metadata.labels['a b']"},
		"empty key":          {path: "metadata.labels['']", err: "invalid key subscript"},
		"subscript of name":  {path: "metadata.name['x']", err: "does not support subscript"},
		"no path":            {path: "['x']", err: "unsupported fieldPath"},
		"node":               {path: "spec.nodeName", want: "node-1"},
		"node's old name":    {path: "spec.host", want: "node-1"},
		"service account":    {path: "spec.serviceAccountName", want: "robot"},
		"pod IP":             {path: "status.podIP", want: "10.0.0.2"},
		"pod IPs":            {path: "status.podIPs", want: "10.0.0.2,fd00::2"},
		"host IP":            {path: "status.hostIP", want: "192.0.2.1"},
		"host IPs":           {path: "status.hostIPs", want: "192.0.2.1,2001:db8::1"},
		"pod IP not known":   {path: "status.podIP", addrs: &Addresses{}, want: ""},
		"host IP not known":  {path: "status.hostIP", addrs: &Addresses{}, err: "not known yet"},
		"host IPs not known": {path: "status.hostIPs", addrs: &Addresses{}, err: "not known yet"},
		"phase":              {path: "status.phase", err: "unsupported fieldPath: status.phase"},
		"other version":      {path: "metadata.name", version: "v2", err: "unsupported pod version: v2"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.addrs == nil {
				tc.addrs = &addrs
			}
			got, err := FieldValue(testPod(), &v1.ObjectFieldSelector{APIVersion: tc.version, FieldPath: tc.path},
				*tc.addrs)
			checkText(t, got, err, tc.want, tc.err)
		})
	}
}

// TestFieldValueOrder checks that lines are in the order of keys: "=" sorts after "-" and "." in a
// whole line.
func TestFieldValueOrder(t *testing.T) {
	pod := testPod(func(p *v1.Pod) { p.Labels = map[string]string{"a-b": "2", "a": "1", "a.b": "3"} })
	got, err := FieldValue(pod, &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}, Addresses{})
	checkText(t, got, err, "a=\"1\"\na-b=\"2\"\na.b=\"3\"", "")
}

func checkText(t *testing.T, got string, err error, want, wantErr string) {
	t.Helper()
	if wantErr != "" {
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Fatalf("error = %v, want one with %q", err, wantErr)
		}
		return
	}
	if err != nil || got != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}
