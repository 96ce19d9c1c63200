// Package checksum computes the checksums of the kubelet's state files.
//
// Purpose: a kubelet guards its state files by a checksum: FNV-1a over a dump of the Go value. The
// dump has the names of the Go types, with the names of their packages. So who shares a file with a
// kubelet names its types as the kubelet does, and this package has the name of the kubelet's.
//
// Truth owned: none. Concurrency: the functions are pure.
package checksum

import (
	"hash/fnv"

	"k8s.io/utils/dump"
)

// Checksum is a checksum in a state file.
type Checksum uint64

// Of returns the checksum of a value.
func Of(value any) Checksum {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(dump.ForHash(value))) // a hash never fails
	return Checksum(sum.Sum32())
}
