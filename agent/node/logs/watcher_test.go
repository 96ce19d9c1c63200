package logs

import (
	"os"
	"path/filepath"
	"testing"
)

// The kernel reports one write to the file, whatever name the file has then.
func TestInotify(t *testing.T) {
	w, err := newInotify()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	path := filepath.Join(t.TempDir(), "0.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 3 {
		watch, err := w.add(f)
		if err != nil || watch <= noWatch {
			t.Fatalf("watch %d, %v", watch, err)
		}
		if err := os.Rename(path, path+"x"); err != nil {
			t.Fatal(err)
		}
		path += "x"
		if _, err := f.WriteString("one\n"); err != nil {
			t.Fatal(err)
		}
		if got := <-w.events(); len(got) != 1 || got[0] != watch {
			t.Errorf("told %v, want %d", got, watch)
		}
		if _, err := f.WriteString("two\n"); err != nil {
			t.Fatal(err)
		}
		w.remove(watch)
	}
	select {
	case got := <-w.events():
		t.Errorf("told of %v, which had ended", got)
	default:
	}
}
