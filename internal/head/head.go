// Package head keeps the beginning of an output.
//
// Purpose: what another program writes may have no end, and must not fill the memory of who reads
// it. Truth owned: none. Concurrency: a [Buffer] is for one writer, and for readers after the
// writer has ended.
package head

// Buffer keeps the first bytes of what is written to it. It has no ReadFrom, which would go past
// the limit.
type Buffer struct {
	// Data is what was kept: at most Most bytes.
	Data []byte
	Most int
	// Cut says that more was written than was kept.
	Cut bool
}

// Write never fails: who writes more than is wanted is not disturbed.
func (b *Buffer) Write(p []byte) (int, error) {
	kept := p[:min(len(p), b.Most-len(b.Data))]
	b.Cut = b.Cut || len(kept) < len(p)
	b.Data = append(b.Data, kept...)
	return len(p), nil
}
