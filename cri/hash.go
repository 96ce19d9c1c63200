package cri

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// hashedFields are the fields that need a new container when they change. JSON writes them in this order, which counts.
type hashedFields struct {
	Image string `json:"image"`
	Name  string `json:"name"`
}

// ContainerHash returns the hash by which a changed container is recognised, in lower-case hexadecimal: the kubelet's
// (release 1.36), so that neither agent restarts what the other started. Only name and image count; everything else in a
// container is immutable or is changed in place.
func ContainerHash(container *v1.Container) string {
	text, err := json.Marshal(hashedFields{Image: container.Image, Name: container.Name})
	if err != nil {
		panic(fmt.Sprintf("two strings have no JSON form: %v", err)) // encoding/json promises that they do
	}
	// The kubelet hashes not the JSON but a dump of it: the Go type, and the bytes in decimal.
	sum := fnv.New32a()
	fmt.Fprintf(sum, "([]uint8)%d", text)
	return strconv.FormatUint(uint64(sum.Sum32()), 16)
}
