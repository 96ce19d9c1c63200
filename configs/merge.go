package configs

import (
	"strings"
)

// layers has the merged values of both documents, as JSON types, before they are converted to
// structs.
type layers map[docKind]map[string]any

// add merges a file's document over the values and records where each value came from.
func (l layers) add(d document, o origins) {
	if l[d.kind] == nil {
		l[d.kind] = map[string]any{}
	}
	for _, p := range pathFields(d.kind) {
		if v, ok := lookup(d.fields, p); ok {
			if s, isString := v.(string); isString {
				put(d.fields, p, d.absolute(s))
			}
		}
	}
	overlay(l[d.kind], d.fields, "", overlayContext{doc: d, origins: o})
}

type overlayContext struct {
	doc     document
	origins origins
}

// overlay merges src into dst as RFC 7386 says: objects are merged, null removes, everything else
// replaces.
func overlay(dst, src map[string]any, path string, c overlayContext) {
	for name, value := range src {
		p := name
		if path != "" {
			p = path + "." + name
		}
		if value == nil {
			delete(dst, name)
			c.origins.forget(c.doc.kind, p)
			continue
		}
		object, isObject := value.(map[string]any)
		if !isObject {
			c.origins.forget(c.doc.kind, p)
			c.record(p, value)
			dst[name] = value
			continue
		}
		old, wasObject := dst[name].(map[string]any)
		if !wasObject {
			c.origins.forget(c.doc.kind, p)
			old = map[string]any{}
			dst[name] = old
		}
		c.origins.set(c.doc.kind, p, c.doc.origin(p))
		overlay(old, object, p, c)
	}
}

// record records the line of a value and of all values in it.
func (c overlayContext) record(path string, value any) {
	c.origins.set(c.doc.kind, path, c.doc.origin(path))
	if _, isList := value.([]any); !isList {
		return
	}
	for p := range c.doc.lines {
		if strings.HasPrefix(p, path+".") {
			c.origins.set(c.doc.kind, p, c.doc.origin(p))
		}
	}
}

// lookup returns the value at a dotted path.
func lookup(fields map[string]any, path string) (any, bool) {
	head, rest, nested := strings.Cut(path, ".")
	v, ok := fields[head]
	if !ok || !nested {
		return v, ok
	}
	sub, isObject := v.(map[string]any)
	if !isObject {
		return nil, false
	}
	return lookup(sub, rest)
}

// put sets the value at a dotted path, and makes missing objects of the path.
func put(fields map[string]any, path string, value any) {
	head, rest, nested := strings.Cut(path, ".")
	if !nested {
		fields[head] = value
		return
	}
	sub, isObject := fields[head].(map[string]any)
	if !isObject {
		sub = map[string]any{}
		fields[head] = sub
	}
	put(sub, rest, value)
}

// pathFields returns the fields with a file or directory. As in the kubelet, a relative path in a
// config file starts at the file's own directory, and on the command line at the working directory.
func pathFields(kind docKind) []string {
	if kind == berthDoc {
		return []string{"socket", "imagesDir", "containerLogsDir", "cni.confDir"}
	}
	return []string{
		"staticPodPath", "authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile", "resolvConf",
		"volumePluginDir", "podLogsDir",
	}
}
