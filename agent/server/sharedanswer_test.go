package server

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// TestSharedAnswer has many callers ask while an answer is made: one more is made for all of them,
// which says what was true when they asked.
func TestSharedAnswer(t *testing.T) {
	const callers = 100
	synctest.Test(t, func(t *testing.T) {
		c := newSharedAnswer()
		state, made := "old", 0
		begun, goOn := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		ask := func(want string, wait func()) {
			all.Go(func() {
				data, err := c.get(func() any {
					made++
					now := state
					wait()
					return now
				})
				if err != nil || string(data) != fmt.Sprintf("%q", want) {
					t.Errorf("got %s, %v; want %s", data, err, want)
				}
			})
		}
		ask("old", func() { close(begun); <-goOn })
		<-begun
		state = "new"
		for range callers {
			ask("new", func() {})
		}
		synctest.Wait()
		close(goOn)
		all.Wait()
		if made != 2 {
			t.Errorf("made %d answers for %d callers", made, callers+1)
		}
		ask("new", func() {})
		if all.Wait(); made != 3 {
			t.Errorf("a later caller got an earlier answer")
		}
	})
}

// TestSharedAnswerOfNoJSON has what cannot be an answer.
func TestSharedAnswerOfNoJSON(t *testing.T) {
	c := newSharedAnswer()
	if data, err := c.get(func() any { return make(chan int) }); err == nil {
		t.Errorf("got %s", data)
	}
}

// TestEqualAnswersShareMemory has callers that read nothing hold their answers.
func TestEqualAnswersShareMemory(t *testing.T) {
	c := newSharedAnswer()
	get := func(value string) []byte {
		data, err := c.get(func() any { return value })
		if err != nil || string(data) != fmt.Sprintf("%q", value) {
			t.Fatalf("got %s, %v; want %s", data, err, value)
		}
		return data
	}
	one, two, three := get("a"), get("a"), get("b")
	if &one[0] != &two[0] {
		t.Error("equal answers have two copies")
	}
	if &two[0] == &three[0] || string(one) != `"a"` {
		t.Errorf("another answer took the place of %s", one)
	}
}
