package server

import (
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/client/api"
)

// events answers with the node's events. With ?watch=true, it sends them one by one and continues
// with new events.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if !asked(r, "watch") {
		items, err := s.eventsSince(r.Context(), r.URL.Query().Get(api.Since))
		if err != nil {
			failWith(w, err)
			return
		}
		if items == nil {
			items = []v1.Event{}
		}
		answer(w, v1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: items})
		return
	}
	kept, following, stop := s.backend.WatchEvents()
	defer stop()
	stream := newEventStream(w)
	for i := range kept {
		if stream.send(&kept[i]) != nil {
			return
		}
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case e, ok := <-following:
			if !ok || stream.send(&e) != nil {
				return
			}
		case <-beat.C:
			if stream.write(": alive\n\n") != nil {
				return
			}
		}
	}
}
