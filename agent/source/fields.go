package source

import (
	"strings"

	"github.com/berthd/berth/agent/fields"
)

// tell adds to the verdict about a pod a warning for each field that does not work here. refused is the verdict about one with a field that is refused: an agent
// runs into it when it admits the pod, and ends it.
func (e element) tell(v Verdict, found []fields.Finding) (told Verdict, refused *Verdict) {
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
		r := rejected(v, *p).Verdict
		refused = &r
	}
	return told, refused
}

// refused are the faults of fields that are refused, without those of which something is said already.
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
