//go:build cluster

package test

import (
	"fmt"
	"strings"
	"testing"
)

// definition is a CustomResourceDefinition with a schema, a column and a status.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.berth.example}
spec:
  group: berth.example
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      additionalPrinterColumns: [{name: Masts, type: integer, jsonPath: .spec.masts}]
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, required: [masts], properties: {masts: {type: integer, maximum: 7}}}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// boat is an object of that kind.
const boat = "{apiVersion: berth.example/v1, kind: Boat, metadata: {name: b}, spec: {masts: %d}}"

// TestCustomResources shows that a server with --crds serves the kinds that users define, with
// their schema, columns and documents, also after a restart; and that one without does not, and
// keeps what there is.
func TestCustomResources(t *testing.T) {
	s := start(t, "--scheduler=false", "--crds")
	s.apply(t, definition)
	s.kubectl(t, "wait", "--for=condition=Established", "crd/boats.berth.example", "--timeout=180s")
	s.await(t, "there can be a boat", func() error {
		_, err := s.as("admin", fmt.Sprintf(boat, 3), "apply", "-f", "-")
		return err
	})
	s.refuses(t, "should be less than or equal to 7", fmt.Sprintf(boat, 9), "apply", "-f", "-")
	s.prints(t, []string{"MASTS", "3"}, "get", "bt")
	s.await(t, "the kind has a document", func() error {
		out, err := s.as("admin", "", "explain", "boat.spec")
		if err == nil && !strings.Contains(out, "masts") {
			err = fmt.Errorf("kubectl explain prints\n%s", out)
		}
		return err
	})
	s.stop(t)
	with := s.args
	s.args = with[:len(with)-1]
	s.start(t)
	s.refuses(t, "the server doesn't have a resource type", "", "get", "boats.berth.example")
	s.refuses(t, "the server doesn't have a resource type", "", "get", "crds")
	s.stop(t)
	s.args = with
	s.start(t)
	s.await(t, "the boat is there again", func() error {
		_, err := s.as("admin", "", "get", "boat", "b")
		return err
	})
}
