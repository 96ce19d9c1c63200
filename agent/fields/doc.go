// Package fields is the compatibility matrix: what berth does with each field of a pod.
//
// Purpose: [All] lists every path of the API's PodSpec, and of the metadata that a node sees, with its [Mark]. The paths are found by reflection over the API's
// types, so that a release of the API that brings a field fails this package's tests until somebody says what becomes of it. [Check] says which fields of a pod
// have no effect here, and which this node refuses: nothing is ignored silently. [Markdown] writes configs/podspec.md.
//
// A path is written as in a manifest: "spec.containers[*].image". [*] stands for any element of a list, and [KEY] for an entry of a map whose keys have meanings
// of their own (resources, annotations).
//
// Truth owned: the rules in the files table*.go. A rule is a claim; the tests of this package check that the test which a rule names exists and speaks of the
// field, and that every field of the others is told of or refused.
//
// Concurrency: everything is a plain function over tables that never change.
package fields

//go:generate sh -c "go run ../../cmd/berth fields -o markdown > ../../configs/podspec.md.new && mv ../../configs/podspec.md.new ../../configs/podspec.md"
