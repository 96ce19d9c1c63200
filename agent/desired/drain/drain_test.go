package drain

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/internal/pods"
)

func pod(uid string, priority int32, grace int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)},
		Spec:       v1.PodSpec{Priority: ptr.To(priority), TerminationGracePeriodSeconds: ptr.To(grace)},
	}
}

func seconds(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }

func TestClasses(t *testing.T) {
	for name, c := range map[string]struct {
		config kubeletconfigv1beta1.KubeletConfiguration
		want   []Class
	}{
		"nothing said": {want: []Class{{0, DefaultGrace}, {pods.Critical, DefaultGrace}}},
		"the critical ones' part": {
			config: kubeletconfigv1beta1.KubeletConfiguration{
				ShutdownGracePeriod: seconds(30), ShutdownGracePeriodCriticalPods: seconds(10),
			},
			want: []Class{{0, 20 * time.Second}, {pods.Critical, 10 * time.Second}},
		},
		"no part for the critical ones": {
			config: kubeletconfigv1beta1.KubeletConfiguration{ShutdownGracePeriod: seconds(30)},
			want:   []Class{{0, 30 * time.Second}, {pods.Critical, 0}},
		},
		"by priority, unsorted": {
			config: kubeletconfigv1beta1.KubeletConfiguration{
				ShutdownGracePeriodByPodPriority: []kubeletconfigv1beta1.ShutdownGracePeriodByPodPriority{
					{Priority: 1000, ShutdownGracePeriodSeconds: 5}, {Priority: -5, ShutdownGracePeriodSeconds: 7},
				},
				ShutdownGracePeriod: seconds(30),
			},
			want: []Class{{-5, 7 * time.Second}, {1000, 5 * time.Second}},
		},
	} {
		if got := Classes(&c.config); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestOrder(t *testing.T) {
	byName := pod("named", 0, 5)
	byName.Spec.Priority, byName.Spec.PriorityClassName = nil, "system-node-critical"
	plain := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "plain"}}
	list := []*v1.Pod{
		byName, pod("high", pods.Critical, 60), pod("low", -10, 3600), pod("mid", pods.Critical-1, 5), plain,
	}
	classes := []Class{{0, 20 * time.Second}, {pods.Critical, 10 * time.Second}}
	got := fmt.Sprint(Order(list, classes))
	want := "[{[{low 20s} {mid 5s} {plain 20s}] 20s 20s} {[{named 5s} {high 10s}] 10s 10s}]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got = fmt.Sprint(Order(list, Unbounded(classes, nil)))
	want = "[{[{low 1h0m0s} {mid 5s} {plain 30s}] 1h0m0s -1ns} {[{named 5s} {high 1m0s}] 1m0s -1ns}]"
	if got != want {
		t.Errorf("unbounded: got  %s\nwant %s", got, want)
	}
	got = fmt.Sprint(Order(list[:1], Unbounded(classes, ptr.To(2*time.Second))))
	if want = "[{[{named 2s}] 2s 2s}]"; got != want {
		t.Errorf("with a grace: got  %s\nwant %s", got, want)
	}
	if n := len(Order(nil, classes)); n != 0 {
		t.Errorf("%d groups without pods", n)
	}
}
