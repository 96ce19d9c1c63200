package notify

import "testing"

func TestNotificationsCoalesce(t *testing.T) {
	s := New()
	for range 3 {
		s.Notify()
	}
	<-s
	select {
	case <-s:
		t.Error("three notifications were held as more than one")
	default:
	}
	s.Notify()
	<-s
}
