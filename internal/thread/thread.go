// Package thread runs what changes a thread for good: its namespaces, its umask.
//
// Purpose: nobody else may run on such a thread. Truth owned: none. Concurrency: the function is
// safe for concurrent use.
package thread

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Own calls f on a thread of its own, which ends with f: whatever f does to the thread, nobody else
// runs there. It is never the main thread, which Go does not end: that would keep what f did, and
// show it to all who look at /proc/self. It returns f's error.
func Own(f func() error) (err error) {
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			err = Own(f) // on another one, because this one is taken
			runtime.UnlockOSThread()
			return
		}
		err = f()
	})
	done.Wait()
	return err
}
