package configs

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// flagKind says how a flag's text is converted to the JSON value of a config field.
type flagKind int

const (
	kindString flagKind = iota
	kindBool
	kindInt
	kindDuration
	kindIP
	kindStrings // a,b (may be repeated)
	kindMap     // k=v,k=v (may be repeated)
	kindLessMap // k<v,k<v
	kindBoolMap // k=true,k=false
	kindHeaders // k:v,k:v; one key may have several values
	kindTaints  // key=value:Effect or key:Effect, comma separated
	// node:resource=quantity,resource=quantity (may be repeated, or several joined by ;)
	kindReserved
	kindVModule // pattern=level, comma separated
)

// flagValue is a pflag.Value that has the value as a config file would have it.
type flagValue struct {
	kind flagKind
	text string
	json any // nil until the flag is given
}

// String returns the flag's text as it was last given, or its default.
func (v *flagValue) String() string { return v.text }

// Type returns the name that help texts show.
func (v *flagValue) Type() string {
	switch v.kind {
	case kindBool:
		return "bool"
	case kindInt:
		return "int"
	case kindDuration:
		return "duration"
	case kindIP:
		return "ip"
	case kindStrings:
		return "strings"
	case kindMap, kindLessMap, kindBoolMap:
		return "map"
	}
	return "string"
}

// Set parses one occurrence of the flag. Lists and maps of repeated flags are joined.
func (v *flagValue) Set(text string) error {
	value, err := parseFlag(v.kind, text)
	if err != nil {
		return err
	}
	switch next := value.(type) {
	case []any:
		old, _ := v.json.([]any)
		value = append(old, next...)
	case map[string]any:
		old, _ := v.json.(map[string]any)
		value = joinMaps(old, next)
	}
	v.text, v.json = text, value
	return nil
}

// joinMaps adds b to a. It appends lists under the same key and replaces everything else.
func joinMaps(a, b map[string]any) map[string]any {
	if a == nil {
		a = map[string]any{}
	}
	for key, value := range b {
		if list, isList := value.([]any); isList {
			old, _ := a[key].([]any)
			value = append(old, list...)
		}
		a[key] = value
	}
	return a
}

func parseFlag(kind flagKind, text string) (any, error) {
	switch kind {
	case kindBool:
		return strconv.ParseBool(text)
	case kindInt:
		n, err := strconv.ParseInt(text, 10, 64)
		return json.Number(strconv.FormatInt(n, 10)), err
	case kindDuration:
		d, err := time.ParseDuration(text)
		return d.String(), err
	case kindIP:
		addr, err := netip.ParseAddr(strings.TrimSpace(text))
		return addr.String(), err
	case kindStrings:
		return parseList(text)
	case kindMap:
		return parsePairs(text, "=", func(s string) (any, error) { return s, nil })
	case kindLessMap:
		return parsePairs(text, "<", func(s string) (any, error) { return s, nil })
	case kindBoolMap:
		return parsePairs(text, "=", func(s string) (any, error) { return strconv.ParseBool(s) })
	case kindHeaders:
		return parsePairs(text, ":", func(s string) (any, error) { return []any{s}, nil })
	case kindTaints:
		return parseTaints(text)
	case kindReserved:
		return parseReservedMemory(text)
	case kindVModule:
		return parseVModule(text)
	}
	return text, nil
}

// parseList splits a comma-separated list. An item may be quoted as in CSV.
func parseList(text string) (any, error) {
	if text == "" {
		return []any{}, nil
	}
	items, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return nil, err
	}
	return asList(items), nil
}

func asList(items []string) []any {
	list := make([]any, len(items))
	for i, item := range items {
		list[i] = item
	}
	return list
}

func parsePairs(text, separator string, value func(string) (any, error)) (any, error) {
	pairs := map[string]any{}
	for _, pair := range splitNonEmpty(text, ",") {
		k, v, ok := strings.Cut(pair, separator)
		if !ok {
			return nil, fmt.Errorf("%q is not of the form KEY%sVALUE", pair, separator)
		}
		parsed, err := value(strings.TrimSpace(v))
		if err != nil {
			return nil, fmt.Errorf("value of %q: %w", k, err)
		}
		pairs = joinMaps(pairs, map[string]any{strings.TrimSpace(k): parsed})
	}
	return pairs, nil
}

func parseTaints(text string) (any, error) {
	taints := []any{}
	for _, item := range splitNonEmpty(text, ",") {
		keyValue, effect, ok := strings.Cut(item, ":")
		if !ok {
			return nil, fmt.Errorf("taint %q is not of the form KEY=VALUE:EFFECT", item)
		}
		taint := map[string]any{"effect": effect}
		key, value, hasValue := strings.Cut(keyValue, "=")
		taint["key"] = key
		if hasValue {
			taint["value"] = value
		}
		taints = append(taints, taint)
	}
	return taints, nil
}

func parseReservedMemory(text string) (any, error) {
	nodes := []any{}
	for _, item := range splitNonEmpty(text, ";") {
		node, limits, ok := strings.Cut(item, ":")
		number, err := strconv.ParseUint(node, 10, 31)
		if !ok || err != nil {
			return nil, fmt.Errorf("reserved memory %q is not of the form NODE:RESOURCE=QUANTITY", item)
		}
		pairs, err := parsePairs(limits, "=", func(s string) (any, error) { return s, nil })
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, map[string]any{"numaNode": json.Number(strconv.FormatUint(number, 10)), "limits": pairs})
	}
	return nodes, nil
}

func parseVModule(text string) (any, error) {
	items := []any{}
	for _, item := range splitNonEmpty(text, ",") {
		pattern, level, ok := strings.Cut(item, "=")
		number, err := strconv.ParseUint(level, 10, 31)
		if !ok || pattern == "" || err != nil {
			return nil, fmt.Errorf("%q is not of the form PATTERN=LEVEL", item)
		}
		items = append(items,
			map[string]any{"filePattern": pattern, "verbosity": json.Number(strconv.FormatUint(number, 10))})
	}
	return items, nil
}

func splitNonEmpty(text, separator string) []string {
	var items []string
	for item := range strings.SplitSeq(text, separator) {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
