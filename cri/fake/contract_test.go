package fake_test

import (
	"testing"

	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/cri/suite"
)

func TestContract(t *testing.T) {
	const image, other = "docker.io/library/busybox:latest", "docker.io/library/alpine:3"
	suite.Run(t, func(*testing.T) suite.Target {
		return suite.Target{
			Runtime: fake.New(fake.Config{
				Images:       []fake.Image{{Name: image, Present: true}, {Name: other}},
				StrictImages: true,
				WriteLogs:    true,
			}),
			Image:     image,
			PullImage: other,
		}
	})
}
