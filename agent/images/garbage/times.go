package garbage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/atomicfile"
)

// use is when an image was seen. It is kept over restarts.
type use struct {
	FirstSeen time.Time `json:"firstSeen"`
	LastUsed  time.Time `json:"lastUsed,omitzero"`
}

// times is the content of the file.
type times struct {
	Version int            `json:"version"`
	Images  map[string]use `json:"images"` // by id
}

// timesVersion is the version of the file's format.
const timesVersion = 1

// note notes which of the images are there and which are used, and returns their times by id. If
// images came or went, it writes the file.
func (c *Collector) note(list []*runtimeapi.Image, used map[string]string) map[string]use {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.load()
	now := time.Now()
	uses := make(map[string]use, len(list))
	for _, image := range list {
		u, known := c.uses[image.GetId()]
		if !known {
			u.FirstSeen = now
		}
		if used[image.GetId()] != "" {
			u.LastUsed = now
		}
		uses[image.GetId()] = u
	}
	same := maps.EqualFunc(c.uses, uses, func(use, use) bool { return true })
	if c.uses = uses; !same {
		c.write()
	}
	return maps.Clone(uses)
}

// forget forgets an image that was removed.
func (c *Collector) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.uses, id)
}

// save writes the file.
func (c *Collector) save() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write()
}

// load reads the file, once. Without it every image is new. The lock is held.
func (c *Collector) load() {
	if c.uses != nil {
		return
	}
	c.uses = map[string]use{}
	data, err := os.ReadFile(c.file)
	if c.file == "" || errors.Is(err, fs.ErrNotExist) {
		return
	}
	var kept times
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err == nil && kept.Version != timesVersion {
		err = fmt.Errorf("its version is %d, want %d", kept.Version, timesVersion)
	}
	if err != nil {
		c.log.Warn("Could not read when images were last used; all count as new", "file", c.file, "err", err)
		return
	}
	now := time.Now()
	for id, u := range kept.Images {
		// a time in the future means that the clock was put back
		c.uses[id] = use{FirstSeen: earlier(u.FirstSeen, now), LastUsed: earlier(u.LastUsed, now)}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}

// write writes the file. It need not outlive a power loss: without it, images only stay longer. The
// lock is held.
func (c *Collector) write() {
	if c.file == "" {
		return
	}
	data, err := json.Marshal(times{Version: timesVersion, Images: c.uses})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(c.file), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(c.file, data, 0o600, atomicfile.OverCrash)
	}
	if err != nil {
		c.log.Warn("Could not note when images were last used", "file", c.file, "err", err)
	}
}
