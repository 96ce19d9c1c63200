package admit

import (
	"fmt"
	"sync"

	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// standards are the Pod Security Standards of the library's release. They are made when the first
// pod is checked.
var standards = sync.OnceValues(func() (policy.Evaluator, error) {
	return policy.NewEvaluator(policy.DefaultChecks(), nil)
})

// podSecurity refuses a pod that does more than the node's Pod Security Standard (KEP-2579) allows.
// Without a standard every pod is allowed.
func podSecurity(in Input) *Rejection {
	level := psa.Level(in.Node.PodSecurity)
	if level == "" || level == psa.LevelPrivileged {
		return nil
	}
	evaluator, err := standards()
	if err != nil {
		return &Rejection{Reason: "UnexpectedAdmissionError", Message: fmt.Sprintf("Pod Security Standards: %v", err)}
	}
	at := psa.LevelVersion{Level: level, Version: psa.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(at, &in.Pod.ObjectMeta, &in.Pod.Spec))
	if result.Allowed {
		return nil
	}
	return &Rejection{
		Reason:  "PodSecurity",
		Message: fmt.Sprintf("violates PodSecurity %q: %s", at.String(), result.ForbiddenDetail()),
	}
}
