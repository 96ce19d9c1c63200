package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/pods"
)

// Change is what has to be written so that the API server has the node's status.
type Change struct {
	// Patch is a strategic merge patch of the pod's status, only for the pod with the given UID;
	// nil if there is nothing to write.
	Patch []byte
	// Urgent says that somebody waits for the change: the phase or the readiness differ.
	Urgent bool
}

// replaced are the fields of a status that the node owns and that a merge patch replaces as a
// whole.
var replaced = []string{
	"phase", "reason", "message", "hostIP", "podIP", "startTime", "observedGeneration",
	"initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses",
}

// merged are the fields whose lists and maps a merge patch would add to, unless the patch has the
// marker to replace them.
var merged = []string{"hostIPs", "podIPs", "allocatedResources", "resources"}

// Diff returns the change from the API server's status of a pod to the node's: the node's own
// fields and conditions that differ, and nothing that has another owner. A final phase at the API
// server stays, with its reason and message.
func Diff(uid types.UID, have, want *v1.PodStatus) (Change, error) {
	if pods.Terminal(have.Phase) && want.Phase != have.Phase {
		w := *want
		w.Phase, w.Reason, w.Message = have.Phase, have.Reason, have.Message
		want = &w
	}
	old, err := fieldsOf(have)
	if err != nil {
		return Change{}, err
	}
	now, err := fieldsOf(want)
	if err != nil {
		return Change{}, err
	}
	patch := map[string]any{}
	for _, name := range slices.Concat(replaced, merged) {
		if bytes.Equal(old[name], now[name]) {
			continue
		}
		switch {
		case now[name] == nil:
			patch[name] = nil
		// without an old value, the marker would delete the new one
		case slices.Contains(merged, name) && old[name] != nil:
			if patch[name], err = replacing(now[name]); err != nil {
				return Change{}, err
			}
		default:
			patch[name] = now[name]
		}
	}
	if conditions := changedConditions(have, want); len(conditions) > 0 {
		patch["conditions"] = conditions
	}
	if len(patch) == 0 {
		return Change{}, nil
	}
	out, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": patch})
	if err != nil {
		return Change{}, fmt.Errorf("encoding a pod's status: %w", err)
	}
	return Change{Patch: out, Urgent: have.Phase != want.Phase || readyStatus(have) != readyStatus(want)}, nil
}

// fieldsOf returns a status's fields by their names in the API.
func fieldsOf(s *v1.PodStatus) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encoding a pod's status: %w", err)
	}
	var out map[string]json.RawMessage
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("encoding a pod's status: %w", err)
	}
	return out, nil
}

// replacing returns a list or an object with the marker to replace the old value.
func replacing(value json.RawMessage) (any, error) {
	const mark = "$patch"
	var list []any
	if json.Unmarshal(value, &list) == nil {
		return append([]any{map[string]any{mark: "replace"}}, list...), nil
	}
	var object map[string]any
	if err := json.Unmarshal(value, &object); err != nil {
		return nil, fmt.Errorf("encoding a pod's status: %w", err)
	}
	out := maps.Clone(object)
	out[mark] = "replace"
	return out, nil
}

// changedConditions are the node's own conditions that differ, and deletion markers for those that
// no longer exist.
func changedConditions(have, want *v1.PodStatus) []any {
	var out []any
	for i := range want.Conditions {
		c := &want.Conditions[i]
		if old := condition(have.Conditions, c.Type); ours(c.Type) &&
			(old == nil || !equality.Semantic.DeepEqual(old, c)) {
			out = append(out, wholeCondition(c))
		}
	}
	for i := range have.Conditions {
		t := have.Conditions[i].Type
		if ownedConditions[t] && condition(want.Conditions, t) == nil {
			out = append(out, map[string]any{"type": t, "$patch": "delete"})
		}
	}
	return out
}

// wholeCondition is a condition with all of its fields, so that no field of the old one stays.
func wholeCondition(c *v1.PodCondition) map[string]any {
	out := map[string]any{
		"type":               c.Type,
		"status":             c.Status,
		"lastTransitionTime": c.LastTransitionTime,
		"lastProbeTime":      c.LastProbeTime,
		"reason":             nil,
		"message":            nil,
		"observedGeneration": nil,
	}
	if c.Reason != "" {
		out["reason"] = c.Reason
	}
	if c.Message != "" {
		out["message"] = c.Message
	}
	if c.ObservedGeneration != 0 {
		out["observedGeneration"] = c.ObservedGeneration
	}
	return out
}

// ours reports whether the node writes conditions of a type. DisruptionTarget has other owners,
// too: the node writes it and never removes it.
func ours(t v1.PodConditionType) bool { return ownedConditions[t] || t == v1.DisruptionTarget }

func readyStatus(s *v1.PodStatus) v1.ConditionStatus {
	if c := condition(s.Conditions, v1.PodReady); c != nil {
		return c.Status
	}
	return v1.ConditionFalse
}
