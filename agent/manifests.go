package agent

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/source"
)

// sources returns what pods come from: what the caller gave, else the manifest directory.
func (a *Agent) sources() []source.Source {
	if len(a.deps.Sources) > 0 {
		return a.deps.Sources
	}
	if a.cfg.Kubelet.StaticPodPath == "" {
		return nil
	}
	return []source.Source{source.NewFile(
		source.FileConfig{Path: a.cfg.Kubelet.StaticPodPath, NodeName: a.node.Name, Rescan: a.cfg.Kubelet.FileCheckFrequency.Duration},
		source.FileDeps{Logger: a.log, LastGood: a.lastGood},
	)}
}

// verdictKey tells verdicts apart, so that each is told of once.
type verdictKey struct {
	file     string
	document int
	message  string
}

// judge tells of the manifests that were refused since the last update: an event on the node, a log line, and the metric.
func (a *Agent) judge(verdicts []source.Verdict) {
	refused := map[verdictKey]bool{}
	for _, v := range verdicts {
		for _, w := range v.Warnings {
			a.tell(refused, verdictKey{v.File, v.Document, w}, "manifest has a warning", v)
		}
		if v.Accepted {
			continue
		}
		key := verdictKey{v.File, v.Document, v.Message}
		if a.tell(refused, key, "manifest refused", v) {
			a.events.Node(v1.EventTypeWarning, "FailedValidation", fmt.Sprintf("%s: %s", v.File, v.Message))
		}
	}
	n := 0
	for _, v := range verdicts {
		if !v.Accepted {
			n++
		}
	}
	a.metrics.ManifestsRejected(n)
	a.told = refused
}

// tell logs a verdict unless it was told of before, and reports whether it was new.
func (a *Agent) tell(now map[verdictKey]bool, key verdictKey, what string, v source.Verdict) bool {
	now[key] = true
	if a.told[key] {
		return false
	}
	a.log.Warn(what, "file", v.File, "document", v.Document, "line", v.Line, "field", v.Field, "message", key.message)
	return true
}

// remember notes in the records which file each pod came from, so that a file that is bad when the agent starts again keeps its pods.
func (a *Agent) remember(verdicts []source.Verdict) {
	files := map[podUID]string{}
	for _, v := range verdicts {
		if v.Accepted && v.UID != "" {
			files[v.UID] = v.File
		}
	}
	a.files.Store(&files)
}

// lastGood returns the pods that a manifest last held, by the records of an earlier run.
func (a *Agent) lastGood(file string) []*v1.Pod {
	return a.restored[file]
}
