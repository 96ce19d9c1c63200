package watched

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berthd/berth/agent/source/objects"
)

// No log and no message quotes a Secret, whatever fails.
func TestSecretsStayOutOfLogs(t *testing.T) {
	const hidden = "hunter2"
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newServer()
		secret := &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"k": []byte(hidden)},
		}
		s.put(secret)
		w := newWatcher(s,
			Deps{
				Wake:   func(types.UID) {},
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.Level(-100)})),
			})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		pod := podWith("1")
		pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}, {Name: "gone"}}
		w.Use(pod)
		synctest.Wait()
		for _, event := range []watch.Event{
			{Type: watch.Error, Object: secret.DeepCopy()},
			{Type: watch.Modified, Object: secret.DeepCopy()},
			{Type: "ODD", Object: secret.DeepCopy()},
		} {
			s.send(event)
			synctest.Wait()
		}
		s.failing(func(string, objects.Key) error { return errAway })
		s.drop()
		time.Sleep(time.Minute)
		synctest.Wait()
		_, err := w.Secret(pod, "gone")
		for _, text := range []string{log.String(), fmt.Sprintf("%v %+v %#v", err, err, err)} {
			if strings.Contains(text, hidden) || strings.Contains(text, "aHVudGVyMg") ||
				strings.Contains(text, "104 117") || strings.Contains(text, "0x68, 0x75") {
				t.Errorf("quoted: %s", text)
			}
		}
		if !strings.Contains(log.String(), "ns/s") {
			t.Error("the log tells of nothing: the test shows nothing")
		}
		cancel()
		<-done
	})
}
