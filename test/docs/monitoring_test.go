package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// These find, in an expression of PromQL, its strings, the labels that it selects or groups by, and
// what it names.
var (
	promString   = regexp.MustCompile(`"[^"]*"`)
	promSelector = regexp.MustCompile(`\{([^}]*)\}`)
	promMatcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	promGrouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
	promName     = regexp.MustCompile(`[a-z_][a-z0-9_]*`)
	promRange    = regexp.MustCompile(`\[[^\]]*\]`)
)

// promWords are the functions and keywords of PromQL that the files use.
func promWords() []string {
	return []string{"sum", "min", "max", "by", "rate", "increase", "histogram_quantile"}
}

// scrapeLabels are the labels that Prometheus adds to each metric of a scrape; le is a histogram's.
func scrapeLabels() []string { return []string{"instance", "job", "le"} }

// checkExpression fails if berth lacks a metric or a label of an expression. It returns the
// metrics.
func checkExpression(t *testing.T, where, expr string, known map[string]metric) []string {
	t.Helper()
	var labels []string
	text := promString.ReplaceAllString(expr, "")
	for _, m := range promSelector.FindAllStringSubmatch(text, -1) {
		for _, matcher := range promMatcher.FindAllStringSubmatch(m[1], -1) {
			labels = append(labels, matcher[1])
		}
	}
	for _, m := range promGrouping.FindAllStringSubmatch(text, -1) {
		for label := range strings.SplitSeq(m[1], ",") {
			labels = append(labels, strings.TrimSpace(label))
		}
	}
	for _, cut := range []*regexp.Regexp{promSelector, promGrouping, promRange} {
		text = cut.ReplaceAllString(text, " ")
	}
	var found, has []string
	for _, name := range promName.FindAllString(text, -1) {
		if slices.Contains(promWords(), name) {
			continue
		}
		m, ok := known[name]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(name, suffix); cut && !ok {
				m, ok = known[base]
			}
		}
		if !ok {
			t.Errorf("%s: berth has no metric %s: %s", where, name, expr)
		}
		found, has = append(found, name), append(has, strings.Split(m.labels, ",")...)
	}
	for _, label := range labels {
		if !slices.Contains(has, label) && !slices.Contains(scrapeLabels(), label) {
			t.Errorf("%s: no metric has the label %s: %s", where, label, expr)
		}
	}
	if len(found) == 0 {
		t.Errorf("%s: no metric in %q", where, expr)
	}
	return found
}

// labelsOf finds the labels that a text of an alert, or a legend, shows.
var labelsOf = regexp.MustCompile(`\$labels\.(\w+)|\{\{(\w+)\}\}`)

func checkShown(t *testing.T, where, text, expr string) {
	t.Helper()
	for _, m := range labelsOf.FindAllStringSubmatch(text, -1) {
		label := m[1] + m[2]
		grouped := promGrouping.FindString(expr)
		if grouped != "" && !regexp.MustCompile(`\b`+label+`\b`).MatchString(grouped) {
			t.Errorf("%s shows the label %s, which %q drops", where, label, expr)
		}
	}
}

// TestAlertsHaveTheirMetrics checks that the alert rules are complete, and that berth has all
// metrics and labels that they name.
func TestAlertsHaveTheirMetrics(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root(t), "configs/monitoring/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		t.Fatal(err)
	}
	known, names := knownMetrics(), map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			checkExpression(t, r.Alert, r.Expr, known)
			if names[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" ||
				r.Annotations["description"] == "" {
				t.Errorf("alert %q has no name of its own, severity, summary or description", r.Alert)
			}
			names[r.Alert] = true
			for _, text := range r.Annotations {
				checkShown(t, r.Alert, text, r.Expr)
			}
		}
	}
	if len(names) < 10 {
		t.Errorf("only %d alerts were found", len(names))
	}
}

// TestDashboardHasItsMetrics checks that berth has all metrics and labels of the dashboard.
func TestDashboardHasItsMetrics(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root(t), "configs/monitoring/grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			Targets []struct {
				Expr   string `json:"expr"`
				Legend string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	known, ids, found := knownMetrics(), map[int]bool{}, 0
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q has no id of its own, title or target", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			found += len(checkExpression(t, p.Title, target.Expr, known))
			checkShown(t, p.Title, target.Legend, target.Expr)
		}
	}
	if found < 15 {
		t.Errorf("only %d metrics were found", found)
	}
}
