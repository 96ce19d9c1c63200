package images

import (
	"errors"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/agent/images/records"
)

// The labels are those of a kubelet for the same cases.
func TestEnsuredCountsDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := map[string]int{}
		policyAll, err := records.NewPolicy(kubeletconfigv1beta1.AlwaysVerify, nil)
		if err != nil {
			t.Fatal(err)
		}
		strict := records.New(t.TempDir(), policyAll, slog.New(slog.DiscardHandler))
		deps := Deps{Ensured: func(policy, present, pull string) { counts[policy+" "+present+" "+pull]++ }}
		want := func(when string, want map[string]int) {
			t.Helper()
			if !maps.Equal(counts, want) {
				t.Errorf("%s: %v, want %v", when, counts, want)
			}
			clear(counts)
		}
		b := start(t, Config{}, deps)
		b.runtime.put("docker.io/library/here:1")
		for range 2 { // the second time is no new decision
			b.want("a", "here:1")
		}
		want("present", map[string]int{"ifnotpresent true false": 1})
		b.want("a", "here:1", attempt(1))
		want("another attempt", map[string]int{"ifnotpresent true false": 1})
		b.want("b", "gone:1")
		wantReady(t, b.want("b", "gone:1"))
		want("pulled", map[string]int{"ifnotpresent false true": 1})
		b.want("c", "here:latest")
		wantReady(t, b.want("c", "here:latest"))
		want("always", map[string]int{"always unknown true": 1})
		for range 2 {
			b.want("d", "none:1", policy(v1.PullNever))
			b.want("e", "UPPER:1")
		}
		want("refused", map[string]int{"never false unknown": 1, "ifnotpresent unknown unknown": 1})
		b.runtime.inspect = errors.New("down")
		b.want("f", "here:1")
		want("not inspected", map[string]int{"ifnotpresent unknown unknown": 1})
		b.end()

		deps.Records = strict
		b = start(t, Config{}, deps)
		b.runtime.put("docker.io/library/secret:1")
		b.want("a", "secret:1", policy(v1.PullNever))
		b.want("b", "secret:1")
		want("not allowed", map[string]int{"ifnotpresent true true": 1, "never true true": 1})
	})
}
