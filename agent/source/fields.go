package source

import (
	"strings"

	"github.com/berthd/berth/agent/pod/fields"
)

// tell adds a warning to the result of a pod for each field that does not work here. refused is the
// result of a pod with a field that is refused: an agent finds that field when it admits the pod,
// and ends the pod.
func (e element) tell(v Result, found []fields.Finding) (told Result, refused *Result) {
	told = v
	for _, f := range found {
		text := "no effect: " + f.Reason
		if f.Mark == fields.Refused {
			text = "not supported, the pod will fail: " + f.Reason
		} else {
			v.Warnings = append(v.Warnings, e.warning(f.Path, text))
		}
		told.Warnings = append(told.Warnings, e.warning(f.Path, text))
	}
	if p := several(e.refused(found, nil)); p != nil {
		r := rejected(v, *p).Result
		refused = &r
	}
	return told, refused
}

// refused returns the faults of fields that are refused, without the fields that said already
// reports.
func (e element) refused(found []fields.Finding, said []Fault) []Fault {
	var faults []Fault
	for _, f := range found {
		known := false
		for i := range said {
			known = known || strings.HasPrefix(said[i].Field+".", f.Path+".")
		}
		if f.Mark == fields.Refused && !known {
			faults = append(faults, e.fault(f.Path, f.String()))
		}
	}
	return faults
}
