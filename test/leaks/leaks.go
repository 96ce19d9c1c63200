// Package leaks looks for goroutines that tests have left behind.
//
// Purpose: a package's TestMain calls [Run] instead of goleak's own function, which gives the last
// goroutines less than half a second to end. On a busy machine, a goroutine that was stopped may
// not have run by then.
//
// Truth owned: none. Concurrency: Run is called once, by TestMain.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end after the last test.
const patience = time.Minute

// Run runs a package's tests, and fails them if goroutines are left. It does not count goroutines
// whose innermost function is in ignored. It returns the exit code for TestMain.
func Run(m *testing.M, ignored ...string) (code int) {
	if code = m.Run(); code != 0 {
		return code
	}
	var options []goleak.Option
	for _, function := range ignored {
		options = append(options, goleak.IgnoreTopFunction(function))
	}
	err := goleak.Find(options...)
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); {
		err = goleak.Find(options...) // Find waits for a while itself
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "the tests passed, but left goroutines: %v\n", err)
		return 1
	}
	return 0
}
