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
	"strings"

	"k8s.io/utils/dump"
)

// Checksum is a checksum in a state file.
type Checksum uint64

// Of returns the checksum of a value.
func Of(value any) Checksum { return of(dump.ForHash(value)) }

// As returns the checksum that a value has if its type is called old: a kubelet computes so the
// checksum of a format that has a newer one, whose type has got the name.
func As(value any, name, old string) Checksum {
	return of(strings.Replace(dump.ForHash(value), name, old, 1))
}

// Verify reports whether a file's checksum is that of one of its formats, and returns that of the
// format that the file seems to have. only says that it has what only the newer one can have. A
// file without a checksum, 0, is right.
func Verify(have, newer, older Checksum, only bool) (Checksum, bool) {
	switch {
	case have == 0, have == newer, have == older && !only:
		return have, true
	case only:
		return newer, false
	}
	return older, false
}

func of(text string) Checksum {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(text)) // a hash never fails
	return Checksum(sum.Sum32())
}
