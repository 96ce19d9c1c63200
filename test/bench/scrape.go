package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// scrape is a path of an agent's statistics, and the keys of its values.
type scrape struct {
	path                      string
	cpu, p50, most            string
	memoryApart, cpuTimeApart string
	// read returns the usage of pods and containers that an answer has.
	read func(text []byte) (map[who]usage, error)
}

var scrapes = []scrape{
	{
		"/stats/summary", "summary_cpu_ms", "summary_p50_ms", "summary_max_ms",
		"summary_memory_apart_percent", "summary_cpu_apart_percent", readSummary,
	},
	{
		"/metrics/resource", "resource_cpu_ms", "resource_p50_ms", "resource_max_ms",
		"resource_memory_apart_percent", "resource_cpu_apart_percent", readResource,
	},
}

// scrapedAgent is the key of the CPU of an agent whose statistics are asked for.
const scrapedAgent = "scraped_cpu_agent_percent"

// scrapeRows returns the table of what statistics cost.
func scrapeRows(s sizes) []row {
	is := func(limit float64, text string) []aim { return []aim{below(berthColumn, limit, text)} }
	many := fmt.Sprintf("%d pods", s.burst)
	out := []row{
		{"idle, " + many + ": CPU of the agent", cpuAgent, "%.2f %%", nil},
		{many + ", both asked every " + s.period.String() + ": CPU of the agent", scrapedAgent, "%.2f %%", is(1, "< 1 %")},
	}
	for _, p := range scrapes {
		out = append(
			out,
			row{p.path + ": CPU of the agent for each answer", p.cpu, "%.1f ms", nil},
			row{p.path + ": answered after, p50", p.p50, "%.0f ms", nil},
			row{p.path + ": answered after, at most", p.most, "%.0f ms", is(100, "< 100 ms")},
			row{p.path + ": memory differs from the cgroups' files by", p.memoryApart, "≤ %.2f %%", is(1, "< 1 %")},
			row{p.path + ": CPU time differs from the cgroups' files by", p.cpuTimeApart, "≤ %.2f %%", is(1, "< 1 %")},
		)
	}
	return out
}

// scraped asks the agent of a node with many pods for its statistics, as a monitoring system does.
func (b *bed) scraped(ctx context.Context) error {
	a, err := b.beginAgent(ctx)
	if err != nil {
		return err
	}
	if _, err := b.burst(ctx, "many", false); err != nil {
		return err
	}
	if err := b.allShown(ctx, a); err != nil {
		return err
	}
	if err := b.idle(ctx, a); err != nil {
		return err
	}
	if err := b.scrapeOften(ctx, a); err != nil {
		return err
	}
	for _, p := range scrapes {
		if err := b.compare(ctx, a, p); err != nil {
			return err
		}
	}
	return nil
}

// scrapeOften asks for all statistics once in each period. The CPU time of an answer is that of the
// time until a beat after it, because the agent may go on measuring.
func (b *bed) scrapeOften(ctx context.Context, a agent) error {
	took, spent := make([][]time.Duration, len(scrapes)), make([]time.Duration, len(scrapes))
	tick := time.NewTicker(b.size.period)
	defer tick.Stop()
	began, atFirst := time.Now(), cpu(a.pid())
	for range b.size.scrapes {
		for i, p := range scrapes {
			asked, before := time.Now(), cpu(a.pid())
			if _, err := a.get(ctx, p.path); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(asked))
			if err := rest(ctx, beat); err != nil {
				return err
			}
			spent[i] += cpu(a.pid()) - before
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	b.out.Values[scrapedAgent] = 100 * (cpu(a.pid()) - atFirst).Seconds() / time.Since(began).Seconds()
	b.say("CPU of the agent: %.2f %%", b.out.Values[scrapedAgent])
	for i, p := range scrapes {
		b.out.times(p.cpu, spent[i]/time.Duration(b.size.scrapes))
		b.out.times(p.p50, percentile(took[i], 50))
		b.out.times(p.most, percentile(took[i], 100))
		b.say("%s: CPU %.1f ms, p50 %s, max %s", p.path, b.out.Values[p.cpu], percentile(took[i], 50),
			percentile(took[i], 100))
	}
	return nil
}

// readSummary reads an answer to /stats/summary.
func readSummary(text []byte) (map[who]usage, error) {
	var summary statsapi.Summary
	if err := json.Unmarshal(text, &summary); err != nil {
		return nil, fmt.Errorf("read the summary: %w", err)
	}
	out := map[who]usage{}
	add := func(w who, c *statsapi.CPUStats, m *statsapi.MemoryStats) {
		if c != nil && c.UsageCoreNanoSeconds != nil && m != nil && m.WorkingSetBytes != nil {
			out[w] = usage{cpu: float64(*c.UsageCoreNanoSeconds) / 1e9, memory: float64(*m.WorkingSetBytes)}
		}
	}
	for i := range summary.Pods {
		p := &summary.Pods[i]
		add(who{pod: p.PodRef.Name}, p.CPU, p.Memory)
		for j := range p.Containers {
			add(who{p.PodRef.Name, p.Containers[j].Name}, p.Containers[j].CPU, p.Containers[j].Memory)
		}
	}
	return out, nil
}

// readResource reads an answer to /metrics/resource.
func readResource(text []byte) (map[who]usage, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	out := map[who]usage{}
	for _, kind := range []string{"pod", "container"} {
		for _, m := range families[kind+"_cpu_usage_seconds_total"].GetMetric() {
			w := whoOf(m.GetLabel())
			u := out[w]
			u.cpu = m.GetCounter().GetValue()
			out[w] = u
		}
		for _, m := range families[kind+"_memory_working_set_bytes"].GetMetric() {
			w := whoOf(m.GetLabel())
			u := out[w]
			u.memory = m.GetGauge().GetValue()
			out[w] = u
		}
	}
	return out, nil
}
