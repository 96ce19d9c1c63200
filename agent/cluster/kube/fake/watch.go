package fake

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is one running watch.
type watcher struct {
	target   target
	selector string
	// changes are waiting to be sent. Closing stop ends the watch.
	changes chan change
	stop    chan struct{}
}

// offer gives a change to the watch if the watch is about it. The caller holds the server's lock.
func (w *watcher) offer(c change) {
	if !w.target.has(c.key) || !selects(w.selector, c.object) {
		return
	}
	select {
	case w.changes <- c:
	default: // no test is as slow as that
	}
}

// BreakWatches ends all current watches, as a lost connection does.
func (s *Server) BreakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		close(w.stop)
		delete(s.watchers, w)
	}
}

// Compact drops the changes so far. Watches of earlier revisions are answered with 410, and current
// watches end.
func (s *Server) Compact() {
	s.mu.Lock()
	s.store.revision++
	s.store.compacted, s.store.history = s.store.revision, nil
	s.mu.Unlock()
	s.BreakWatches()
}

// watch sends changes until the watch ends.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target) {
	from, err := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	if err != nil {
		s.refuse(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	s.mu.Lock()
	if from < s.store.compacted {
		s.mu.Unlock()
		s.refuse(w, r, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", from)))
		return
	}
	me := &watcher{
		target:   t,
		selector: r.URL.Query().Get("fieldSelector"),
		changes:  make(chan change, 1024),
		stop:     make(chan struct{}),
	}
	for _, c := range s.store.history {
		if c.revision > from {
			me.offer(c)
		}
	}
	s.watchers[me] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, me)
		s.mu.Unlock()
	}()
	info := s.encoding(r)
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	out := info.StreamSerializer.Framer.NewFrameWriter(w)
	for {
		_ = flush.Flush()
		select {
		case <-me.stop:
			return
		case <-r.Context().Done():
			return
		case c := <-me.changes:
			if s.send(out, info, c) != nil {
				return
			}
		}
	}
}

// send writes one event. It encodes a copy, because encoding writes the kind into the object, which
// others read.
func (s *Server) send(out interface{ Write([]byte) (int, error) }, info runtime.SerializerInfo, c change) error {
	var object, event bytes.Buffer
	if err := s.codecs.EncoderForVersion(info.Serializer, c.key.gv).Encode(c.object.DeepCopyObject(),
		&object); err != nil {
		return err
	}
	e := &metav1.WatchEvent{Type: string(watch.EventType(c.kind)), Object: runtime.RawExtension{Raw: object.Bytes()}}
	if err := s.codecs.EncoderForVersion(info.StreamSerializer.Serializer, c.key.gv).Encode(e, &event); err != nil {
		return err
	}
	_, err := out.Write(event.Bytes())
	return err
}
