package show

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berthd/berth/client/api"
)

// shortID is how many characters of an image's id are shown, without the algorithm.
const shortID = 13

// Images writes the images and, above them, the running pulls and the archives that are not
// imported. wide shows complete ids and digests, and all archives.
func Images(w io.Writer, images *api.Images, wide bool, now time.Time) error {
	for _, t := range []*Table{Pulls(images.Pulls, now), archives(images.Archives, wide)} {
		if len(t.Rows) == 0 {
			continue
		}
		if err := t.Write(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	t := Table{Headings: []string{"IMAGE", "TAG", "IMAGE ID", "SIZE", "LAST USED"}}
	if wide {
		t.Headings = append(t.Headings, "DIGEST", "PINNED")
	}
	for _, i := range images.Items {
		tags := i.Tags
		if len(tags) == 0 {
			tags = []string{""}
		}
		for _, full := range tags {
			name, tag := splitTag(full)
			id := i.ID
			if !wide {
				_, id, _ = strings.Cut(id, ":")
				id = id[:min(shortID, len(id))]
			}
			row := []string{orNone(name), orNone(tag), id, Size(i.Size), lastUsed(i, now)}
			if wide {
				row = append(row, orNone(strings.Join(i.Digests, ",")), fmt.Sprint(i.Pinned))
			}
			t.Add(row...)
		}
	}
	return t.Write(w)
}

// archives returns the table of the archives: with all, also of those that are imported.
func archives(list []api.Archive, all bool) *Table {
	t := &Table{Headings: []string{"ARCHIVE", "STATE", "IMAGES", "MESSAGE"}}
	for _, a := range list {
		if all || a.State != api.ArchiveImported {
			t.Add(a.Path, a.State, orNone(strings.Join(a.Images, ",")), Clean(a.Error))
		}
	}
	return t
}

// lastUsed says when an image was last used: "now", "5m ago" or "never".
func lastUsed(i api.Image, now time.Time) string {
	switch {
	case i.InUse:
		return "now"
	case i.LastUsed.IsZero():
		return "never"
	}
	return Age(now, i.LastUsed) + " ago"
}

// Pruned writes which images were removed or, in a dry run, would be, and how much space they took.
func Pruned(w io.Writer, images []api.Image, dryRun bool) error {
	did, freed := "Removed", "Freed"
	if dryRun {
		did, freed = "Would remove", "Would free"
	}
	var sum uint64
	for _, i := range images {
		name := strings.Join(i.Tags, ", ")
		if name == "" {
			name = i.ID
		}
		if _, err := fmt.Fprintf(w, "%s %s (%s)\n", did, Clean(name), Size(i.Size)); err != nil {
			return err
		}
		sum += i.Size
	}
	_, err := fmt.Fprintf(w, "%s %s\n", freed, Size(sum))
	return err
}

// Pulls returns the table of the running pulls.
func Pulls(pulls []api.Pull, now time.Time) *Table {
	t := &Table{Headings: []string{"PULLING", "STATE", "PROGRESS", "FOR", "PODS", "RETRY", "MESSAGE"}}
	for _, p := range pulls {
		retry := "-"
		if p.RetryAt != nil {
			retry = "in " + Took(max(p.RetryAt.Sub(now), 0))
		}
		t.Add(p.Image, p.State, Progress(p), Age(now, p.Since), fmt.Sprint(p.Waiters), retry, p.Message)
	}
	return t
}

// Progress returns the progress of a pull, "27% of 45.0MB"; "-" if it is not known. It is 100% only
// if everything has arrived.
func Progress(p api.Pull) string {
	if p.Total <= 0 {
		return "-"
	}
	return fmt.Sprintf("%d%% of %s", min(max(p.Done, 0), p.Total)*100/p.Total, Size(uint64(p.Total)))
}

// splitTag splits a reference at its tag. The colon of a port does not begin a tag.
func splitTag(ref string) (name, tag string) {
	if i := strings.LastIndex(ref, ":"); i > strings.LastIndex(ref, "/") {
		return ref[:i], ref[i+1:]
	}
	return ref, ""
}
