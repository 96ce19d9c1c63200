package bootstrap

import (
	"errors"
	"sync"
)

// workers is how many objects are written at a time. etcd brings them to the disk together.
const workers = 8

// each calls do with a pointer to each of the objects, for several at a time, and returns all errors.
func each[T any](objects []T, do func(*T) error) error {
	errs := make([]error, len(objects))
	next := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range next {
				errs[i] = do(&objects[i])
			}
		})
	}
	for i := range objects {
		next <- i
	}
	close(next)
	all.Wait()
	return errors.Join(errs...)
}
