package admit

import (
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// standards are the Pod Security Standards of the library's release. They are made when the first
// pod is checked.
var standards = sync.OnceValues(func() (policy.Evaluator, error) {
	return policy.NewEvaluator(policy.DefaultChecks(), nil)
})

// CheckSecurity returns why a pod may not run on a node with a Pod Security Standard: baseline or
// restricted. It returns nil if the pod may run, and for the empty standard.
func CheckSecurity(pod *v1.Pod, standard string) *Rejection {
	return podSecurity(Input{Pod: pod, Node: Node{PodSecurity: standard}})
}

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
