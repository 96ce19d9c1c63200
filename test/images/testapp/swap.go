package main

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// swap exchanges the files of each pair of names again and again, as quickly as it can. A container
// that attacks the node does this.
func swap(args []string) error {
	if len(args) == 0 || len(args)%2 != 0 {
		return errors.New("swap needs pairs of files")
	}
	end := signals()
	var swappers sync.WaitGroup
	stop := make(chan struct{})
	for i := 0; i < len(args); i += 2 {
		swappers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat2(unix.AT_FDCWD, args[i], unix.AT_FDCWD, args[i+1], unix.RENAME_EXCHANGE)
				}
			}
		})
	}
	<-end
	close(stop)
	swappers.Wait()
	return nil
}
