package native

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// message is a CRI message in a record.
type message[T proto.Message] struct{ of T }

// MarshalJSON implements json.Marshaler.
func (m message[T]) MarshalJSON() ([]byte, error) { return protojson.Marshal(m.of) }

// UnmarshalJSON implements json.Unmarshaler. Fields of a later version are dropped.
func (m *message[T]) UnmarshalJSON(data []byte) error {
	m.of = m.of.ProtoReflect().New().Interface().(T)
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m.of)
}
