package logs

import (
	"cmp"
	"strings"
	"time"

	"github.com/berthd/berth/cri"
)

// How rotated logs are named, as the kubelet does: N.log.YYYYMMDD-HHMMSS in local time, with .gz once compressed, and .tmp while that is under way.
const (
	rotatedLayout    = "20060102-150405"
	compressedSuffix = ".gz"
	temporarySuffix  = ".tmp"
	logSuffix        = ".log"
)

// part is a rotated part of a log.
type part struct {
	name string
	// stem is the name without what compression adds: it names the part for its whole life, and parts of one log were written in the order of their stems.
	stem string
}

func (p part) compressed() bool { return p.name != p.stem }

// partOf reads a file's name as that of a rotated part of the log base; false for the log itself, for others' files, and for temporary ones.
func partOf(base, name string) (part, bool) {
	rest, ok := strings.CutPrefix(name, base+".")
	if !ok || rest == "" || strings.HasSuffix(name, temporarySuffix) {
		return part{}, false
	}
	stem := strings.TrimSuffix(name, compressedSuffix)
	return part{name: name, stem: stem}, stem != base
}

// byStem orders parts oldest first. Of the two files of a part whose compression was not quite finished, the plain one comes first.
func byStem(a, b part) int {
	return cmp.Or(cmp.Compare(a.stem, b.stem), cmp.Compare(len(a.name), len(b.name)))
}

// logOf returns the log that a file belongs to ("3.log") and the number of the container's instance that wrote it; false where the file is none of a log's.
func logOf(name string) (base string, attempt int, ok bool) {
	attempt, ok = cri.ParseContainerLog(name)
	if !ok {
		return "", 0, false
	}
	digits, _, _ := strings.Cut(name, logSuffix)
	return digits + logSuffix, attempt, true
}

// nextStem returns the name that a log gets which is rotated now: of this second, or of the first one after its newest part's. Names therefore always
// grow, though a log is rotated several times in a second, or the clock is put back.
func nextStem(base, newest string, now time.Time) string {
	stamp, _ := strings.CutPrefix(newest, base+".")
	last, err := time.ParseInLocation(rotatedLayout, stamp, now.Location())
	if err != nil {
		return base + "." + now.Format(rotatedLayout)
	}
	if !now.Truncate(time.Second).After(last) {
		now = last.Add(time.Second)
	}
	for ; ; now = now.Add(time.Hour) { // again only in the hour that comes twice when summer ends
		if stem := base + "." + now.Format(rotatedLayout); stem > newest {
			return stem
		}
	}
}
