package cri

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// hashedFields are the fields whose change needs a new container. JSON writes them in this order,
// which changes the hash.
type hashedFields struct {
	Image string `json:"image"`
	Name  string `json:"name"`
}

// ContainerHash returns the hash that identifies a changed container, in lower-case hexadecimal. It
// is the kubelet's (release 1.36), so neither agent restarts what the other started. Only name and
// image count: everything else in a container is immutable or is changed in place.
func ContainerHash(container *v1.Container) string {
	text, err := json.Marshal(hashedFields{Image: container.Image, Name: container.Name})
	if err != nil {
		// encoding/json always encodes strings
		panic(fmt.Sprintf("two strings have no JSON form: %v", err))
	}
	// The kubelet does not hash the JSON but a dump of it: the Go type, and the bytes in decimal.
	sum := fnv.New32a()
	fmt.Fprintf(sum, "([]uint8)%d", text)
	return strconv.FormatUint(uint64(sum.Sum32()), 16)
}
