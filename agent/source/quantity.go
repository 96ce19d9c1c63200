package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// numberAndUnit matches a number and the word behind it.
var numberAndUnit = regexp.MustCompile(`^([+-]?[0-9]+(?:[.,][0-9]+)?)\s*([A-Za-z%]*)$`)

// noQuantity says why a value is no quantity, and what to write in place of it.
func noQuantity(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return "must be a quantity, such as 2, 500m or 64Mi, not " + article(kindOfJSON(raw))
	}
	said := fmt.Sprintf("%q is not a quantity: write ", text)
	parts := numberAndUnit.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		return said + "a number, perhaps with a unit behind it, such as 2, 500m, 64M or 64Mi"
	}
	number, unit := strings.Replace(parts[1], ",", ".", 1), parts[2]
	var right []string
	for _, u := range meant(unit) {
		right = append(right, number+u)
	}
	if unit == "%" || right == nil {
		return said + "an amount, such as 2, 500m, 64M or 64Mi"
	}
	return said + strings.Join(right, " or ")
}

// meant returns the units of quantities that somebody may have meant with another word: of bytes,
// the one of thousands and the one of 1024; none for a word that is not known.
func meant(word string) []string {
	lower := strings.ToLower(word)
	if slices.Contains([]string{"", "b", "byte", "bytes", "c", "core", "cores", "cpu", "cpus", "vcpu", "vcpus"}, lower) {
		return []string{""}
	}
	if slices.Contains([]string{"millicpu", "millicpus", "millicore", "millicores", "mcpu", "mcores"}, lower) {
		return []string{"m"}
	}
	prefix := strings.ToUpper(lower[:1])
	if !strings.Contains("KMGTPE", prefix) {
		return nil
	}
	thousands := strings.Replace(prefix, "K", "k", 1)
	switch lower[1:] {
	case "", "b":
		if word == thousands || word == prefix+"i" {
			return []string{word} // the number was wrong, or a blank was before the unit
		}
		return []string{thousands, prefix + "i"}
	case "i", "ib":
		return []string{prefix + "i"}
	}
	return nil
}

// fractions warns of amounts of bytes that are no whole bytes: most times, "m" was written for "M".
func (e element) fractions(pod *v1.Pod) []string {
	var out []string
	check := func(path string, q resource.Quantity) {
		if whole := resource.NewQuantity(q.Value(), q.Format); q.Cmp(*whole) != 0 {
			out = append(out, e.warning(path, fmt.Sprintf(
				`%s is no whole number of bytes: "m" stands for thousandths; write M or Mi for millions`, q.String())))
		}
	}
	both := func(path string, r v1.ResourceRequirements) {
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			if inBytes(name) {
				check(fmt.Sprintf("%s.limits[%s]", path, name), r.Limits[name])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
			// without a request, the limit is the default
			limit, limited := r.Limits[name]
			if inBytes(name) && (!limited || !limit.Equal(r.Requests[name])) {
				check(fmt.Sprintf("%s.requests[%s]", path, name), r.Requests[name])
			}
		}
	}
	if r := pod.Spec.Resources; r != nil {
		both("spec.resources", *r)
	}
	for i := range pod.Spec.InitContainers {
		both(fmt.Sprintf("spec.initContainers[%d].resources", i), pod.Spec.InitContainers[i].Resources)
	}
	for i := range pod.Spec.Containers {
		both(fmt.Sprintf("spec.containers[%d].resources", i), pod.Spec.Containers[i].Resources)
	}
	for i := range pod.Spec.Volumes {
		if dir := pod.Spec.Volumes[i].EmptyDir; dir != nil && dir.SizeLimit != nil {
			check(fmt.Sprintf("spec.volumes[%d].emptyDir.sizeLimit", i), *dir.SizeLimit)
		}
	}
	return out
}

// inBytes reports whether amounts of a resource are in bytes.
func inBytes(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
