package agent

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/source"
)

// sources returns what pods come from: static ones from what the caller gave, else from the manifest directory and the URL, and a cluster's from its API server.
func (a *Agent) sources() ([]source.Source, error) {
	out := a.deps.Sources
	if len(out) == 0 {
		out = a.staticSources()
	}
	if a.deps.Conn != nil {
		bound, err := a.apiSource()
		if err != nil {
			return nil, err
		}
		out = append(slices.Clone(out), bound)
	}
	if len(out) == 0 {
		a.log.Warn("no source of pods is configured (staticPodPath and staticPodURL are empty): pods of an earlier run end now")
	}
	return out, nil
}

func (a *Agent) staticSources() []source.Source {
	var out []source.Source
	k := &a.cfg.Kubelet
	if k.StaticPodPath != "" {
		out = append(out, source.NewFile(
			source.FileConfig{Path: k.StaticPodPath, NodeName: a.node.Name, Rescan: k.FileCheckFrequency.Duration},
			source.FileDeps{Logger: a.log, LastGood: a.lastGood},
		))
	}
	if k.StaticPodURL != "" {
		out = append(out, source.NewHTTP(
			source.HTTPConfig{URL: k.StaticPodURL, Header: k.StaticPodURLHeader, NodeName: a.node.Name, Poll: k.HTTPCheckFrequency.Duration},
			source.HTTPDeps{Logger: a.log, LastGood: a.lastGood},
		))
	}
	return out
}

// verdictKey tells verdicts apart, so that each is told of once.
type verdictKey struct {
	file     string
	document int
	message  string
}

// toldBytes is about as much as an event tells of one manifest; the API server takes messages of 1024 bytes.
const toldBytes = 800

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
		key := verdictKey{v.File, v.Document, v.Text(toldBytes)}
		if a.tell(refused, key, "manifest refused", v) {
			a.events.Node(v1.EventTypeWarning, "FailedValidation", fmt.Sprintf("%s: %s", v.File, key.message))
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

// remember notes which file each pod came from, and wakes those whose file was renamed: it goes into their records, so that a file that is bad when the
// agent starts again keeps its pods.
func (a *Agent) remember(verdicts []source.Verdict) {
	files := map[podUID]string{}
	for _, v := range verdicts {
		if v.Accepted && v.UID != "" {
			files[v.UID] = v.File
		}
	}
	before := a.files.Swap(&files)
	for uid, file := range files {
		if before != nil && (*before)[uid] != file {
			a.workers.Wake(uid)
		}
	}
}

// lastGood returns the pods that a manifest last held, by the records of an earlier run.
func (a *Agent) lastGood(file string) []*v1.Pod {
	return a.restored[file]
}
