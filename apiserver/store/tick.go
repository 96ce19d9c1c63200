package store

import (
	"reflect"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
)

const (
	// electing is raft's tick until the only member has been elected, which takes one to five ticks.
	electing = time.Millisecond
	// elected is raft's tick after that. A leader without followers has nothing to do then.
	elected = time.Second
)

// tick sets how often the clock of raft ticks, and says whether it could. etcd has one setting for
// all of the store's life, and measures its timeouts by it: 100 ms, for members on other machines.
// That is up to half a second of each start, and twenty wake-ups a second ever after.
func tick(server *etcdserver.EtcdServer, every time.Duration) bool {
	node := reflect.ValueOf(server).Elem().FieldByName("r")
	if node.Kind() != reflect.Struct {
		return false
	}
	field := node.FieldByName("ticker")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*time.Ticker]() || field.IsNil() {
		return false
	}
	// A ticker's own methods may be called from any goroutine. The field never changes.
	(*time.Ticker)(field.UnsafePointer()).Reset(every)
	return true
}
