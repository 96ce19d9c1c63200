package node

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxFile is the largest file in bytes that is read.
const maxFile = 1 << 20

// readFile reads a file of at most maxFile bytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// enabled reports whether a kernel parameter is "Y".
func enabled(path string) bool {
	data, err := readFile(path)
	return err == nil && strings.TrimSpace(string(data)) == "Y"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// kernelRelease returns the running kernel's release; empty if the kernel does not give it.
func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}
