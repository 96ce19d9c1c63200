package generate

import (
	"fmt"
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// user is the user that a container runs as: uid or name, never both.
type user struct {
	uid  *int64
	name string
}

// userOf returns the user that the container runs as: the container's runAsUser, the pod's, or the
// image's. An image that names no user means root. userOf refuses root and names under
// runAsNonRoot, and any id that a runtime could cut to another one (CVE-2021-25749,
// CVE-2024-40635).
func userOf(pod *v1.Pod, c *v1.Container, image cri.Image) (user, error) {
	own, shared := contexts(pod, c)
	nonRoot := isTrue(either(own.RunAsNonRoot, shared.RunAsNonRoot))
	where := fmt.Sprintf("(pod: %q, container: %s)", podName(pod), c.Name)
	if uid := either(own.RunAsUser, shared.RunAsUser); uid != nil {
		if nonRoot && *uid == 0 {
			return user{}, fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
		}
		return user{uid: uid}, checkID("runAsUser", uid)
	}
	switch uid, name := image.UID, image.Username; {
	case uid == nil && name != "" && nonRoot:
		return user{}, fmt.Errorf(
			"container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s",
			name, where)
	case uid == nil && name != "":
		// A valid id would have come as an id, not as a name. So these digits are no valid id.
		if strings.Trim(name, "0123456789") == "" {
			return user{}, fmt.Errorf("image has an invalid user id (%s). (Must be 0-(%d)) %s", name,
				math.MaxInt32, where)
		}
		return user{name: name}, nil
	case uid == nil:
		uid = new(int64)
		fallthrough
	default:
		if nonRoot && *uid == 0 {
			return user{}, fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
		}
		if nonRoot && !validID(*uid) {
			return user{}, fmt.Errorf(
				"container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(%d)) %s", *uid,
				math.MaxInt32, where)
		}
		if !validID(*uid) {
			return user{}, fmt.Errorf("image has an invalid user id (%d). (Must be 0-(%d)) %s", *uid,
				math.MaxInt32, where)
		}
		return user{uid: uid}, nil
	}
}

// groups returns the pod's supplemental groups: fsGroup, those of its volumes, and
// supplementalGroups.
func groups(pod *v1.Pod, extra []int64) ([]int64, error) {
	var out []int64
	sc := pod.Spec.SecurityContext
	if sc != nil && sc.FSGroup != nil {
		out = append(out, *sc.FSGroup)
	}
	out = append(out, extra...)
	if sc != nil {
		out = append(out, sc.SupplementalGroups...)
	}
	for _, id := range out {
		if err := checkID("group", &id); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// groupsPolicy returns whether the image's own groups count, too. A runtime that does not know the
// policy would ignore it, so the policy is refused.
func groupsPolicy(pod *v1.Pod, supported bool) (runtimeapi.SupplementalGroupsPolicy, error) {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil {
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	}
	switch policy := *sc.SupplementalGroupsPolicy; {
	case policy == v1.SupplementalGroupsPolicyMerge:
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	case policy != v1.SupplementalGroupsPolicyStrict:
		return 0, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", policy)
	case !supported:
		return 0, fmt.Errorf("supplementalGroupsPolicy: %s is not supported by the runtime of this node", policy)
	}
	return runtimeapi.SupplementalGroupsPolicy_Strict, nil
}

// checkID refuses a user or group id that is negative or over 2^31-1. Nil is valid.
func checkID(field string, id *int64) error {
	if id == nil || validID(*id) {
		return nil
	}
	return fmt.Errorf("%s %d is not valid: must be 0-%d", field, *id, math.MaxInt32)
}

func validID(id int64) bool { return id >= 0 && id <= math.MaxInt32 }

func idValue(id *int64) *runtimeapi.Int64Value {
	if id == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *id}
}
