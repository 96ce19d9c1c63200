package generate

import "testing"

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "one", "B": "$(A)", "E": "", "x-y": "dash"}
	tests := map[string]string{
		"":            "",
		"plain":       "plain",
		"$(A)":        "one",
		"-$(A)-$(A)-": "-one-one-",
		"$(B)":        "$(A)",
		"[$(E)]":      "[]",
		"$(x-y)":      "dash",
		"$(MISSING)":  "$(MISSING)",
		"$$(A)":       "$(A)",
		"$$$(A)":      "$one",
		"$$$$(A)":     "$$(A)",
		"$A":          "$A",
		"$":           "$",
		"$$":          "$",
		"a$":          "a$",
		"$(A":         "$(A",
		"$(A $(A)":    "$(A $(A)",
		"$()":         "$()",
		"$((A))":      "$((A))",
		"é$é$(A)é":    "é$éoneé",
		"\xff$\xff":   "\xff$\xff",
	}
	for text, want := range tests {
		got, err := expand(text, func(name string) (string, bool) {
			value, ok := vars[name]
			return value, ok
		}, func(int) error { return nil })
		if got != want || err != nil {
			t.Errorf("expand(%q) = %q (%v), want %q", text, got, err, want)
		}
	}
}
