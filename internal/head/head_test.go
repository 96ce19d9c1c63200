package head

import (
	"fmt"
	"strings"
	"testing"
)

func TestBuffer(t *testing.T) {
	for most, want := range map[int]string{0: "", 4: "abcd", 6: "abcdef", 7: "abcdef"} {
		b := &Buffer{Most: most}
		for _, part := range []string{"abc", "", "def"} {
			if n, err := fmt.Fprint(b, part); n != len(part) || err != nil {
				t.Errorf("with room for %d bytes, %d of %q are written: %v", most, n, part, err)
			}
		}
		if string(b.Data) != want || b.Cut != (most < 6) {
			t.Errorf("with room for %d bytes, it has %q, cut %v", most, b.Data, b.Cut)
		}
	}
}

// What never ends takes no more memory than there is room for.
func TestBufferStaysSmall(t *testing.T) {
	b := &Buffer{Most: 1 << 10}
	for range 1 << 10 {
		fmt.Fprint(b, strings.Repeat("x", 1<<10))
	}
	if cap(b.Data) > 4<<10 {
		t.Errorf("it takes %d bytes", cap(b.Data))
	}
}
