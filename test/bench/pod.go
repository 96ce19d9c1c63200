package main

import (
	"fmt"

	barepods "github.com/berthd/berth/test/bare"
	"github.com/berthd/berth/test/images"
)

// manifest is the pod as a manifest.
func manifest(name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
spec:
  containers:
    - name: main
      image: %s
      imagePullPolicy: IfNotPresent
      command: [sh, -c, %q]
`, name, images.Busybox, barepods.Script)
}
