package main

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/internal/pods"
)

// object prints what happens to a ConfigMap, a Secret or another local object, and which pods read
// it.
func (d *differ) object(item source.Item) {
	v := item.Result
	name := strings.TrimPrefix(v.Namespace+"/"+v.Name, "/")
	old, unknown := d.inForce(v)
	if unknown != "" {
		fmt.Fprintf(d.w, "%s %s: %s\n", v.Kind, name, show.Clean(unknown))
	}
	if old != nil && equality.Semantic.DeepEqual(old, item.Object) {
		fmt.Fprintf(d.w, "%s %s: does not change\n", v.Kind, name)
		return
	}
	if old != nil {
		if errs := source.Changed(old, item.Object); len(errs) > 0 {
			fmt.Fprintf(d.w, "%s %s: is immutable; the change would be refused, and the one that is there stays:\n",
				v.Kind, name)
			for _, err := range errs {
				fmt.Fprintf(d.w, "  %s\n", show.Clean(err.Error()))
			}
			fmt.Fprintln(d.w,
				"  (to change it, take it out of its manifest directory first, and put the new one there then)")
			d.refused++
			return
		}
	}
	readers := d.readers(v)
	switch {
	case len(readers) > 0 && old == nil && unknown == "":
		fmt.Fprintf(d.w, "%s %s: is new; is read by %s\n", v.Kind, name, strings.Join(readers, ", "))
	case len(readers) > 0:
		fmt.Fprintf(d.w,
			"%s %s: restarts nothing; is read by %s (mounted files change by themselves, environments at the next "+
				"restart)\n", v.Kind, name, strings.Join(readers, ", "))
	default:
		fmt.Fprintf(d.w, "%s %s: no pod reads it\n", v.Kind, name)
	}
}

// after returns the pods that there would be: those of the manifests, and those of the agent that
// they neither replace nor let go.
func (d *differ) after() []*v1.Pod {
	var out []*v1.Pod
	for i := range d.pods {
		if name := pods.FullName(&d.pods[i]); d.changes[name] == nil && !slices.Contains(d.admission.Leaving, name) {
			out = append(out, &d.pods[i])
		}
	}
	for i := range d.items {
		if d.items[i].Pod != nil {
			out = append(out, d.items[i].Pod)
		}
	}
	return out
}

// readers returns the pods that would refer to an object.
func (d *differ) readers(v source.Result) []string {
	var readers []string
	for _, p := range d.after() {
		if p.Namespace != v.Namespace && objects.Namespaced(v.Kind) {
			continue
		}
		for ref := range source.References(&p.Spec) {
			if ref.Kind == v.Kind && ref.Name == v.Name {
				readers = append(readers, pods.FullName(p))
				break
			}
		}
	}
	return readers
}

// inForce returns the object that the agent uses, read from its manifest. It returns nil if the
// agent has none, or if the object cannot be known; unknown is the reason then.
func (d *differ) inForce(v source.Result) (object objects.Object, unknown string) {
	same := func(m api.Manifest) bool { return m.Kind == v.Kind && m.Namespace == v.Namespace && m.Name == v.Name }
	i := slices.IndexFunc(d.results, func(m api.Manifest) bool { return m.Accepted && same(m) })
	if i < 0 {
		return nil, ""
	}
	file := d.results[i].File
	if d.results[i].Kept {
		unknown = "an earlier version is in force, since the one in " + file + " is refused"
		if r := slices.IndexFunc(d.results, func(m api.Manifest) bool {
			return !m.Accepted && m.Message != "" && same(m)
		}); r >= 0 {
			unknown += ": " + show.Problem(d.results[r])
		}
		return nil, unknown
	}
	data, err := source.ReadManifest(file, nil)
	if err != nil {
		return nil, "cannot be compared with what the agent has: " + err.Error()
	}
	for _, item := range d.decoder.Decode(file, data) {
		if w := item.Result; item.Object != nil && w.Kind == v.Kind && w.Namespace == v.Namespace && w.Name == v.Name {
			return item.Object, ""
		}
	}
	return nil, "cannot be compared: " + file + " has changed, and the agent has not read it yet"
}
