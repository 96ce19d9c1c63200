//go:build integration

package integration

import (
	"flag"
	"os"
	"testing"
)

// sideBySide is how many tests run at once. Mostly the tests wait for graces, probes and backoffs.
const sideBySide = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", sideBySide)
	}
	os.Exit(m.Run())
}
