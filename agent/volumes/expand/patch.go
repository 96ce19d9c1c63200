package expand

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resizing are the conditions of a claim that are about its size. An expansion that is done removes
// all of them.
var resizing = []v1.PersistentVolumeClaimConditionType{
	v1.PersistentVolumeClaimFileSystemResizePending, v1.PersistentVolumeClaimResizing,
	v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
}

// inProgress is the patch that says that the driver is being asked. It fails if the claim has
// changed meanwhile.
func inProgress(claim *v1.PersistentVolumeClaim) ([]byte, error) {
	return patch(claim.ResourceVersion,
		map[string]any{"allocatedResourceStatuses": state(v1.PersistentVolumeClaimNodeResizeInProgress)})
}

// finished is the patch that says that the volume has a size. It fails if the claim has changed
// meanwhile.
func finished(claim *v1.PersistentVolumeClaim, size resource.Quantity) ([]byte, error) {
	status := map[string]any{"capacity": v1.ResourceList{v1.ResourceStorage: size}}
	if states := claim.Status.AllocatedResourceStatuses; len(states) > 1 {
		status["allocatedResourceStatuses"] = map[v1.ResourceName]any{v1.ResourceStorage: nil}
	} else if states != nil {
		status["allocatedResourceStatuses"] = nil
	}
	var gone []any
	for _, c := range claim.Status.Conditions {
		if slices.Contains(resizing, c.Type) {
			gone = append(gone, map[string]any{"$patch": "delete", "type": c.Type})
		}
	}
	if gone != nil {
		status["conditions"] = gone
	}
	return patch(claim.ResourceVersion, status)
}

// failed is the patch that says that the driver has failed, and with infeasible that it will always
// fail. It is nil if the claim says so already.
func failed(claim *v1.PersistentVolumeClaim, cause error, infeasible bool, now metav1.Time) ([]byte, error) {
	status := map[string]any{}
	if infeasible &&
		claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] != v1.PersistentVolumeClaimNodeResizeInfeasible {
		status["allocatedResourceStatuses"] = state(v1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	has := slices.ContainsFunc(claim.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == v1.PersistentVolumeClaimNodeResizeError && c.Status == v1.ConditionTrue
	})
	if !has {
		status["conditions"] = []v1.PersistentVolumeClaimCondition{{
			Type:               v1.PersistentVolumeClaimNodeResizeError,
			Status:             v1.ConditionTrue,
			LastTransitionTime: now,
			Message:            fmt.Sprintf("failed to expand pvc with %v", cause),
		}}
	}
	if len(status) == 0 {
		return nil, nil
	}
	return patch("", status)
}

func state(s v1.ClaimResourceStatus) map[v1.ResourceName]v1.ClaimResourceStatus {
	return map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: s}
}

// patch returns a strategic merge patch of a claim's status. It applies only to the named version,
// if one is named.
func patch(version string, status map[string]any) ([]byte, error) {
	out := map[string]any{"status": status}
	if version != "" {
		out["metadata"] = map[string]string{"resourceVersion": version}
	}
	return json.Marshal(out)
}
