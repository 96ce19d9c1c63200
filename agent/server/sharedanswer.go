package server

import (
	"bytes"
	"encoding/json"

	"golang.org/x/sync/singleflight"
)

// sharedAnswer is an answer that does not depend on who asks. One request at a time makes it, for
// all that came before it began: many callers cost as much as one, and nobody gets what is older
// than the request. It is safe for concurrent use.
type sharedAnswer struct {
	// making has one place, which the request has that makes the answer.
	making chan struct{}
	asked  singleflight.Group
	// last is the last answer. An equal one takes no memory beside it, however many callers are slow
	// to read theirs. Who has the place in making has it.
	last []byte
}

func newSharedAnswer() *sharedAnswer { return &sharedAnswer{making: make(chan struct{}, 1)} }

// get returns the answer as JSON. value returns what it says.
func (a *sharedAnswer) get(value func() any) ([]byte, error) {
	data, err, _ := a.asked.Do("", func() (any, error) {
		a.making <- struct{}{}
		defer func() { <-a.making }()
		a.asked.Forget("") // who asks from here on gets a newer one
		data, err := json.Marshal(value())
		if err == nil && !bytes.Equal(data, a.last) {
			a.last = data
		}
		return a.last, err
	})
	return data.([]byte), err
}
