package credentials

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is printed in place of a secret.
const redacted = "[redacted]"

// Secret is a text that only [Secret.Reveal] returns. No verb of fmt shows it, and neither does
// slog or an encoder. The zero value is the empty text.
type Secret struct {
	text *string // a pointer, because fmt prints fields whose methods it may not call
}

// NewSecret returns a Secret with the text.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal returns the text, for code that sends it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Format writes the same placeholder text for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue does the same for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText does the same for encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
