// Package fields is the compatibility matrix: what berth does with each field of a pod.
//
// Purpose: [All] lists every path of the API's PodSpec, and of the metadata that a node sees, with
// its [Mark]. Reflection over the API's types finds the paths, so this package's tests fail after a
// release of the API adds a field, until somebody adds its rule. [Check] returns which fields of a
// pod have no effect here, and which this node refuses: no field is ignored silently. [Markdown]
// writes configs/podspec.md.
//
// A path is written as in a manifest: "spec.containers[*].image". [*] stands for any element of a
// list. [KEY] stands for an entry of a map whose keys have meanings of their own (resources,
// annotations).
//
// Truth owned: the rules in the files table*.go. A rule is a claim. This package's tests check that
// the test which a rule names exists and sets the field itself, and that every field that does not
// work gets a warning or is refused.
//
// Concurrency: all functions are plain functions over tables that never change.
package fields

//go:generate sh -c "go run ../../../cmd/berth fields -o markdown > ../../../configs/podspec.md.new && mv ../../../configs/podspec.md.new ../../../configs/podspec.md"
