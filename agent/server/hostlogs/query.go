package hostlogs

import (
	"net/url"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The limits of a query are those of kubelet 1.36.
const (
	maxLines    = 100000
	maxServices = 4
	maxName     = 256
)

// Query is a request for the node's logs.
type Query struct {
	// Services are units of systemd, without ".service", or else names of files; File is a path
	// below the directory. A query has one or the other.
	Services []string
	File     string
	// Since and Until bound the entries in time; zero for no bound.
	Since, Until time.Time
	// Lines is the number of the last entries that are returned. Boot selects a start of the
	// machine: 0 for the current one, -1 for the one before. Nil means that the request does not
	// say.
	Lines, Boot *int
	// Pattern is a regular expression that entries match; empty for all.
	Pattern string
}

// unitName allows the characters of systemd's unit names without the backslash of its escapes
// (systemd.unit(5)).
var unitName = regexp.MustCompile(`^[a-zA-Z0-9:_.@-]+$`)

// Parse parses a request's query; nil if the request has no parameter of a query. The errors name
// parameters.
func Parse(values url.Values) (*Query, field.ErrorList) {
	asked := false
	for _, name := range []string{"query", "sinceTime", "untilTime", "tailLines", "boot", "pattern"} {
		asked = asked || values.Has(name) && (name == "query" || values.Get(name) != "")
	}
	if !asked {
		return nil, nil
	}
	p := parser{values: values}
	q := &Query{
		Since: p.time("sinceTime"), Until: p.time("untilTime"), Pattern: values.Get("pattern"),
		Lines: p.number("tailLines", 0, maxLines), Boot: p.number("boot", -1<<31, 0),
	}
	var files []string
	for _, name := range values["query"] {
		switch {
		case strings.ContainsAny(name, `/\`):
			files = append(files, name)
		case strings.TrimSpace(name) != "":
			q.Services = append(q.Services, name)
			if len(name) > maxName || !unitName.MatchString(name) || strings.HasPrefix(name, "-") {
				p.invalid("query", name, "is not the name of a service")
			}
		}
	}
	switch {
	case len(files)+len(q.Services) == 0:
		p.errs = append(p.errs, field.Required(field.NewPath("query"), "name a service or a file"))
	case len(q.Services) > maxServices:
		p.errs = append(p.errs, field.TooMany(field.NewPath("query"), len(q.Services), maxServices))
	case len(files) > 1:
		p.invalid("query", files, "only one file at a time")
	case len(files) == 1 && len(q.Services) > 0:
		p.invalid("query", values["query"], "services and a file may not be asked for together")
	case len(files) == 1:
		q.File = files[0]
		if !q.plain() {
			p.invalid("query", q.File, "a file is served whole: the other parameters are for services")
		}
	}
	if !q.Since.IsZero() && !q.Until.IsZero() && q.Since.After(q.Until) {
		p.invalid("untilTime", values.Get("untilTime"), "is before sinceTime")
	}
	if _, err := syntax.Parse(q.Pattern, syntax.Perl); err != nil {
		p.invalid("pattern", q.Pattern, err.Error())
	}
	return q, p.errs
}

// plain reports whether the query only selects a log.
func (q *Query) plain() bool {
	return q.Since.IsZero() && q.Until.IsZero() && q.Lines == nil && q.Boot == nil && q.Pattern == ""
}

// parser parses parameters and collects errors.
type parser struct {
	values url.Values
	errs   field.ErrorList
}

func (p *parser) invalid(name string, value any, why string) {
	p.errs = append(p.errs, field.Invalid(field.NewPath(name), value, why))
}

func (p *parser) time(name string) time.Time {
	text := p.values.Get(name)
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		p.invalid(name, text, "must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z")
	}
	return at
}

func (p *parser) number(name string, least, most int) *int {
	text := p.values.Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		p.invalid(name, text, "must be a number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
		return nil
	}
	return &n
}

// journalTime is a time as journalctl reads it, in UTC (systemd.time(7)).
const journalTime = "2006-01-02 15:04:05 UTC"

// journalArgs returns journalctl's arguments for the entries of services.
func (q *Query) journalArgs(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if !q.Since.IsZero() {
		args = append(args, "--since="+q.Since.UTC().Format(journalTime))
	}
	if !q.Until.IsZero() {
		args = append(args, "--until="+q.Until.UTC().Format(journalTime))
	}
	if q.Lines != nil {
		args = append(args, "--pager-end", "--lines="+strconv.Itoa(*q.Lines))
	}
	for _, service := range services {
		args = append(args, "--unit="+service)
	}
	if q.Pattern != "" {
		args = append(args, "--grep="+q.Pattern)
	}
	if q.Boot != nil {
		args = append(args, "--boot="+strconv.Itoa(*q.Boot))
	}
	return args
}
