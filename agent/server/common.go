package server

import (
	"encoding/json"

	"golang.org/x/sync/singleflight"
)

// common is an answer that does not depend on who asks. One request at a time makes it, for all
// that came before it began: many callers cost as much as one, and nobody gets what is older than
// the request. It is safe for concurrent use.
type common struct {
	// making has one place, which the request has that makes the answer.
	making chan struct{}
	asked  singleflight.Group
}

func newCommon() *common { return &common{making: make(chan struct{}, 1)} }

// get returns the answer as JSON. value returns what it says.
func (c *common) get(value func() any) ([]byte, error) {
	data, err, _ := c.asked.Do("", func() (any, error) {
		c.making <- struct{}{}
		defer func() { <-c.making }()
		c.asked.Forget("") // who asks from here on gets a newer one
		return json.Marshal(value())
	})
	return data.([]byte), err
}
