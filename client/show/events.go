package show

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
)

// EventColumns selects the columns of a list of events.
type EventColumns struct {
	// Namespace adds the namespace as the first column. Wide adds the part of the object, the count
	// and the first time.
	Namespace, Wide bool
}

// Headings returns the names of the columns.
func (c EventColumns) Headings() []string {
	h := []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "CONTAINER"}
	if c.Namespace {
		h = append([]string{"NAMESPACE"}, h...)
	}
	if c.Wide {
		h = append(h, "SUBOBJECT", "COUNT", "FIRST SEEN")
	}
	return append(h, "MESSAGE")
}

// Row returns the row of an event.
func (c EventColumns) Row(e *v1.Event, now time.Time) []string {
	object := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
	row := []string{Age(now, e.LastTimestamp.Time), e.Type, e.Reason, object, cmp.Or(api.ContainerOf(e), "-")}
	if c.Namespace {
		row = append([]string{e.Namespace}, row...)
	}
	if c.Wide {
		row = append(row, e.InvolvedObject.FieldPath, fmt.Sprint(e.Count), Age(now, e.FirstTimestamp.Time))
	}
	return append(row, e.Message)
}

// Events returns the table of events.
func Events(events []v1.Event, columns EventColumns, now time.Time) *Table {
	t := &Table{Headings: columns.Headings()}
	for i := range events {
		t.Add(columns.Row(&events[i], now)...)
	}
	return t
}
