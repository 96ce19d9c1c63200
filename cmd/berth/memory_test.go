package main

import "testing"

func TestReadOnlyMapping(t *testing.T) {
	const exe = "/usr/bin/berth"
	for line, want := range map[string]bool{
		"00400000-013a0000 r-xp 00000000 fe:00 123 /usr/bin/berth": true,
		"013a0000-02c00000 r--p 00fa0000 fe:00 123 /usr/bin/berth": true,
		"02c00000-02d00000 rw-p 02800000 fe:00 123 /usr/bin/berth": false,
		"7f0000000000-7f0000001000 r-xp 00000000 00:00 0 [vdso]":   false,
		"c000000000-c000400000 rw-p 00000000 00:00 0":              false,
		"": false,
	} {
		start, length, ok := readOnlyMapping(line, exe)
		if ok != want || ok && (start == 0 || length == 0) {
			t.Errorf("readOnlyMapping(%q) = %x, %x, %v; want ok %v", line, start, length, ok, want)
		}
	}
}

// The program still works after its pages were released.
func TestDropProgramPages(t *testing.T) {
	for range 3 {
		if err := dropProgramPages(); err != nil {
			t.Fatal(err)
		}
	}
}
