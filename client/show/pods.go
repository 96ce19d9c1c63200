package show

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/berthd/berth/client/api"
)

// PodColumns selects the columns of a list of pods.
type PodColumns struct {
	// Namespace adds the namespace as the first column. Wide adds IP, NODE, SOURCE and READINESS
	// GATES. Labels adds the labels.
	Namespace, Wide, Labels bool
}

// Headings returns the names of the columns.
func (c PodColumns) Headings() []string {
	h := []string{"NAME", "READY", "STATUS", "RESTARTS", "AGE"}
	if c.Namespace {
		h = append([]string{"NAMESPACE"}, h...)
	}
	if c.Wide {
		h = append(h, "IP", "NODE", "SOURCE", "READINESS GATES")
	}
	if c.Labels {
		h = append(h, "LABELS")
	}
	return h
}

// Row returns the row of a pod.
func (c PodColumns) Row(p api.PodSummary, now time.Time) []string {
	row := []string{
		p.Name, fmt.Sprintf("%d/%d", p.Ready, p.Containers), p.Status, restarts(p, now), Age(now, p.Created),
	}
	if c.Namespace {
		row = append([]string{p.Namespace}, row...)
	}
	if c.Wide {
		ip := ""
		if len(p.IPs) > 0 {
			ip = p.IPs[0]
		}
		row = append(row, orNone(ip), orNone(p.Node), orNone(p.Source), gates(p))
	}
	if c.Labels {
		row = append(row, orNone(labels.FormatLabels(p.Labels)))
	}
	return row
}

// restarts returns the number of restarts and how long ago the last one was.
func restarts(p api.PodSummary, now time.Time) string {
	if p.Restarts == 0 || p.LastRestart == nil {
		return fmt.Sprint(p.Restarts)
	}
	return fmt.Sprintf("%d (%s ago)", p.Restarts, Age(now, *p.LastRestart))
}

// gates returns how many of a pod's readiness gates are true.
func gates(p api.PodSummary) string {
	if p.ReadinessGates == 0 {
		return "<none>"
	}
	return fmt.Sprintf("%d/%d", p.ReadinessGatesTrue, p.ReadinessGates)
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

// Pods returns the table of pods.
func Pods(pods []api.PodSummary, columns PodColumns, now time.Time) *Table {
	t := &Table{Headings: columns.Headings()}
	for _, p := range pods {
		t.Add(columns.Row(p, now)...)
	}
	return t
}
