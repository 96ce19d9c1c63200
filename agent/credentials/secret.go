package credentials

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is what is shown of a secret.
const redacted = "[redacted]"

// Secret is a text that shows itself to nobody who does not ask for it by [Secret.Reveal]: not to fmt with any verb, not to slog, not to an
// encoder. The zero value is the empty text.
type Secret struct {
	text *string // a pointer, because fmt writes what is in fields that it may not call methods of
}

// NewSecret hides the text.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal returns the text, for those who send it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Format writes that there is something, for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue does the same for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText does the same for encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
