package main

import (
	"fmt"

	barepods "github.com/berthd/berth/test/bare"
	"github.com/berthd/berth/test/images"
)

// mainContainer is the name of the pod's container.
const mainContainer = "main"

// manifest is the pod as a manifest.
func manifest(name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
spec:
  containers:
    - name: %s
      image: %s
      imagePullPolicy: IfNotPresent
      command: [sh, -c, %q]
`, name, mainContainer, images.Busybox, barepods.Script)
}
