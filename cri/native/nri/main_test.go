package nri

import (
	"os"
	"testing"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) {
	os.Exit(leaks.Run(m))
}
