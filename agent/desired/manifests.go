package desired

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/source"
)

// resultKey tells results of manifests' validation apart, so that each is reported once.
type resultKey struct {
	file     string
	document int
	message  string
}

// maxReported is about the number of bytes that an event has for one manifest. The API server
// accepts messages of up to 1024 bytes.
const maxReported = 800

// reportResults reports the manifests that were refused since the last update: by an event on the
// node, a log line, and the metric.
func (r *Reconciler) reportResults(results []source.Result) {
	now := map[resultKey]bool{}
	refused := 0
	for _, v := range results {
		for _, w := range v.Warnings {
			at := v
			at.Line, at.Field = 0, ""
			if line, text := source.LineOfWarning(w); line > 0 {
				at.Line, w = line, text
			}
			r.report(now, resultKey{v.File, v.Document, w}, "manifest has a warning", at)
		}
		if v.Accepted {
			continue
		}
		refused++
		key := resultKey{v.File, v.Document, v.Text(maxReported)}
		if r.report(now, key, "manifest refused", v) {
			r.deps.Event(v1.EventTypeWarning, "FailedValidation", fmt.Sprintf("%s: %s", place(v), key.message))
		}
	}
	r.deps.Refused(refused)
	r.reported = now
}

// place returns the file of a result, with its line if it has one.
func place(v source.Result) string {
	if v.Line > 0 {
		return fmt.Sprintf("%s:%d", v.File, v.Line)
	}
	return v.File
}

// report logs a result that was not logged before, and reports whether the result was new.
func (r *Reconciler) report(now map[resultKey]bool, key resultKey, what string, v source.Result) bool {
	now[key] = true
	if r.reported[key] {
		return false
	}
	r.log.Warn(what, "file", v.File, "document", v.Document, "line", v.Line, "field", v.Field, "message", key.message)
	return true
}

// rememberFiles notes the file of each pod, and wakes the pods whose file was renamed. A pod's
// record names the pod's file: if the file is bad when the agent starts again, the file's pods are
// kept. rememberFiles returns the pods whose file was deleted and is there again, and was not seen
// missing.
func (r *Reconciler) rememberFiles(results []source.Result) (returned map[types.UID]bool) {
	files := map[types.UID]origin{}
	for _, v := range results {
		if v.Accepted && v.UID != "" {
			files[v.UID] = origin{file: v.File, arrival: v.Arrival}
		}
	}
	before := r.deps.State.setFiles(files)
	returned = map[types.UID]bool{}
	for uid, now := range files {
		if before != nil && before[uid].file != now.file {
			r.deps.Workers.Wake(uid)
		}
		if before[uid].returned(now) {
			returned[uid] = true
		}
	}
	return returned
}
