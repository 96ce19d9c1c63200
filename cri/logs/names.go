package logs

import (
	"cmp"
	"strings"
	"time"

	"github.com/berthd/berth/cri"
)

// The names of rotated logs, which are the kubelet's: N.log.YYYYMMDD-HHMMSS in local time, with .gz
// when compressed, and with .tmp during the compression.
const (
	rotatedLayout    = "20060102-150405"
	compressedSuffix = ".gz"
	temporarySuffix  = ".tmp"
	logSuffix        = ".log"
)

// part is a rotated part of a log.
type part struct {
	name string
	// stem is the name without the suffix of a compression. It names the part for its whole life.
	// The order of the stems is the order in which a log's parts were written.
	stem string
}

func (p part) compressed() bool { return p.name != p.stem }

// partOf reads a file's name as the name of a rotated part of the log base. ok is false for the log
// itself, for temporary files and for all other files.
func partOf(base, name string) (part, bool) {
	rest, ok := strings.CutPrefix(name, base+".")
	if !ok || rest == "" || strings.HasSuffix(name, temporarySuffix) {
		return part{}, false
	}
	stem := strings.TrimSuffix(name, compressedSuffix)
	return part{name: name, stem: stem}, stem != base
}

// byStem orders parts oldest first. If a compression was almost finished, a part has two files; the
// uncompressed one comes first.
func byStem(a, b part) int {
	return cmp.Or(cmp.Compare(a.stem, b.stem), cmp.Compare(len(a.name), len(b.name)))
}

// logOf returns the log that a file belongs to ("3.log"), and the attempt of the container that
// wrote the file. ok is false if the file is not part of a log.
func logOf(name string) (base string, attempt int, ok bool) {
	attempt, ok = cri.ParseContainerLog(name)
	if !ok {
		return "", 0, false
	}
	digits, _, _ := strings.Cut(name, logSuffix)
	return digits + logSuffix, attempt, true
}

// nextStem returns the name for a log that is rotated now. The name has this second, or the first
// second after the newest part's. So names always grow, even if a log is rotated several times in a
// second or the clock is set back.
func nextStem(base, newest string, now time.Time) string {
	stamp, _ := strings.CutPrefix(newest, base+".")
	last, err := time.ParseInLocation(rotatedLayout, stamp, now.Location())
	if err != nil {
		return base + "." + now.Format(rotatedLayout)
	}
	if !now.Truncate(time.Second).After(last) {
		now = last.Add(time.Second)
	}
	// only the hour that comes twice when summer time ends needs a second try
	for ; ; now = now.Add(time.Hour) {
		if stem := base + "." + now.Format(rotatedLayout); stem > newest {
			return stem
		}
	}
}
