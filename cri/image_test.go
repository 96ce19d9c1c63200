package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestImageOf(t *testing.T) {
	if got := ImageOf("r", nil); got.UID != nil || got.Username != "" || got.Ref != "r" {
		t.Errorf("no image: %+v", got)
	}
	if got := ImageOf("r", &runtimeapi.Image{Username: "www"}); got.UID != nil || got.Username != "www" {
		t.Errorf("name: %+v", got)
	}
	if got := ImageOf("r", &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 0}, Username: "www"}); got.UID == nil ||
		*got.UID != 0 || got.Username != "" {
		t.Errorf("number: %+v", got)
	}
}
