package eventwriter

import (
	"container/list"

	"k8s.io/apimachinery/pkg/types"
)

// known is a set of names with a limit. Beyond the limit, the name that was added first is removed.
type known struct {
	limit int
	order *list.List
	names map[types.NamespacedName]*list.Element
}

func newKnown(limit int) *known {
	return &known{limit: limit, order: list.New(), names: map[types.NamespacedName]*list.Element{}}
}

func (k *known) has(name types.NamespacedName) bool { return k.names[name] != nil }

func (k *known) add(name types.NamespacedName) {
	if k.has(name) {
		return
	}
	if k.order.Len() >= k.limit {
		if oldest, ok := k.order.Front().Value.(types.NamespacedName); ok {
			k.remove(oldest)
		}
	}
	k.names[name] = k.order.PushBack(name)
}

func (k *known) remove(name types.NamespacedName) {
	if at := k.names[name]; at != nil {
		k.order.Remove(at)
		delete(k.names, name)
	}
}
