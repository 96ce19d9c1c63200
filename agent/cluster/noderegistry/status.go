package noderegistry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
)

// Status returns the node's own part of a Node's status. have is the Node as the API server has it.
func Status(cfg Config, f Facts, have *v1.Node, now time.Time) v1.NodeStatus {
	s := v1.NodeStatus{
		Capacity:         f.Capacity.DeepCopy(),
		Allocatable:      f.Allocatable.DeepCopy(),
		Conditions:       Conditions(f, have.Status.Conditions, now),
		Addresses:        addresses(cfg, f, have),
		NodeInfo:         f.Info,
		Images:           f.Images,
		RuntimeHandlers:  f.Handlers,
		Features:         f.Features,
		DeclaredFeatures: f.Declared,
		VolumesInUse:     f.VolumesInUse,
		DaemonEndpoints:  v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: f.Port}},
	}
	for name, amount := range have.Status.Capacity {
		if _, own := s.Capacity[name]; own || !strings.Contains(string(name), "/") {
			continue
		}
		if f.Fresh && cfg.Register && helper.IsExtendedResourceName(name) {
			amount = *resource.NewQuantity(0, resource.DecimalSI)
			s.Capacity[name] = amount
		}
		s.Allocatable[name] = amount // an extended resource that another client set
	}
	return s
}

// addresses returns the node's addresses and its name. Addresses from a cloud provider stay.
func addresses(cfg Config, f Facts, have *v1.Node) []v1.NodeAddress {
	if cfg.External && len(have.Status.Addresses) > 0 {
		return have.Status.Addresses
	}
	var out []v1.NodeAddress
	for _, ip := range f.Addresses {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: cfg.Name})
}

// Conditions returns the node's own conditions, with the words of kubelet 1.36. A condition whose
// status does not change keeps the time of its last change.
func Conditions(f Facts, before []v1.NodeCondition, now time.Time) []v1.NodeCondition {
	ready := v1.NodeCondition{
		Type:    v1.NodeReady,
		Status:  v1.ConditionTrue,
		Reason:  "KubeletReady",
		Message: "kubelet is posting ready status",
	}
	switch len(f.Faults) {
	case 0:
	case 1:
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, "KubeletNotReady", f.Faults[0]
	default:
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, "KubeletNotReady",
			"["+strings.Join(f.Faults, ", ")+"]"
	}
	out := []v1.NodeCondition{
		pressure(v1.NodeMemoryPressure, f.MemoryPressure,
			[2]string{"KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
			[2]string{"KubeletHasInsufficientMemory", "kubelet has insufficient memory available"}),
		pressure(v1.NodeDiskPressure, f.DiskPressure,
			[2]string{"KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
			[2]string{"KubeletHasDiskPressure", "kubelet has disk pressure"}),
		pressure(v1.NodePIDPressure, f.PIDPressure,
			[2]string{"KubeletHasSufficientPID", "kubelet has sufficient PID available"},
			[2]string{"KubeletHasInsufficientPID", "kubelet has insufficient PID available"}),
		ready,
	}
	at := metav1.NewTime(now).Rfc3339Copy()
	for i := range out {
		out[i].LastHeartbeatTime, out[i].LastTransitionTime = at, at
		if old := condition(before, out[i].Type); old != nil && old.Status == out[i].Status &&
			!old.LastTransitionTime.IsZero() {
			out[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	return out
}

// pressure returns a condition about a lack. without and with have its reason and message in the
// two states.
func pressure(t v1.NodeConditionType, lacks bool, without, with [2]string) v1.NodeCondition {
	c := v1.NodeCondition{Type: t, Status: v1.ConditionFalse, Reason: without[0], Message: without[1]}
	if lacks {
		c.Status, c.Reason, c.Message = v1.ConditionTrue, with[0], with[1]
	}
	return c
}

func condition(list []v1.NodeCondition, t v1.NodeConditionType) *v1.NodeCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// StatusPatch returns a strategic merge patch that brings the node's part of the API server's
// status to want. changed is false if only the heartbeats differ. Resources and conditions that
// others set stay.
func StatusPatch(have, want *v1.NodeStatus) (patch []byte, changed bool, err error) {
	old, err := fieldsOf(have)
	if err != nil {
		return nil, false, err
	}
	now, err := fieldsOf(want)
	if err != nil {
		return nil, false, err
	}
	status := map[string]any{"conditions": conditionPatches(want.Conditions)}
	for i := range want.Conditions {
		before, c := condition(have.Conditions, want.Conditions[i].Type), want.Conditions[i]
		if before != nil {
			c.LastHeartbeatTime = before.LastHeartbeatTime
		}
		changed = changed || before == nil || !equality.Semantic.DeepEqual(*before, c)
	}
	for _, name := range []string{
		"nodeInfo", "images", "runtimeHandlers", "features", "declaredFeatures", "daemonEndpoints", "addresses",
		"volumesInUse",
	} {
		if bytes.Equal(old[name], now[name]) {
			continue
		}
		changed = true
		switch {
		case now[name] == nil:
			status[name] = nil
		// a merge identifies addresses by their type, and two may have one type
		case name == "addresses":
			list := []any{map[string]any{"$patch": "replace"}}
			for _, a := range want.Addresses {
				list = append(list, a)
			}
			status[name] = list
		default:
			status[name] = now[name]
		}
	}
	for name, lists := range map[string][2]v1.ResourceList{
		"capacity": {have.Capacity, want.Capacity}, "allocatable": {have.Allocatable, want.Allocatable},
	} {
		if amounts := amountsPatch(lists[0], lists[1]); len(amounts) > 0 {
			changed, status[name] = true, amounts
		}
	}
	patch, err = json.Marshal(map[string]any{"status": status})
	if err != nil {
		return nil, false, fmt.Errorf("encoding the node's status: %w", err)
	}
	return patch, changed, nil
}

// conditionPatches returns conditions with all of their fields.
func conditionPatches(list []v1.NodeCondition) []any {
	var out []any
	for _, c := range list {
		out = append(out, map[string]any{
			"type":               c.Type,
			"status":             c.Status,
			"reason":             c.Reason,
			"message":            c.Message,
			"lastHeartbeatTime":  c.LastHeartbeatTime,
			"lastTransitionTime": c.LastTransitionTime,
		})
	}
	return out
}

// amountsPatch returns the resources that differ, and those of the node's own kinds that do not
// exist any more.
func amountsPatch(have, want v1.ResourceList) map[string]any {
	out := map[string]any{}
	for name, amount := range want {
		if old, ok := have[name]; !ok || old.Cmp(amount) != 0 {
			out[string(name)] = amount.String()
		}
	}
	for name := range have {
		if _, stays := want[name]; !stays && !strings.Contains(string(name), "/") {
			out[string(name)] = nil
		}
	}
	return out
}

// fieldsOf returns a status's fields under their names in the API.
func fieldsOf(s *v1.NodeStatus) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encoding the node's status: %w", err)
	}
	var out map[string]json.RawMessage
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("encoding the node's status: %w", err)
	}
	return out, nil
}
