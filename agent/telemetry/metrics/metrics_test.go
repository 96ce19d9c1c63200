package metrics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/probes"
)

// gather returns every series as "name{label=value,…} value"; the value of a histogram is its
// count.
func gather(t *testing.T, s *Set) []string {
	t.Helper()
	families, err := prometheus.Gatherers{s.Registry, s.Probes}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", f.GetName())
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			out = append(out, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), value))
		}
	}
	return out
}

func TestEveryMethodIsGathered(t *testing.T) {
	s := New("node1", "v1.2.3")
	s.Synced("sync", time.Second)
	s.Step("sandbox", "done", time.Second)
	s.Rejected("OutOfcpu")
	s.Operation("run_podsandbox", time.Second, nil)
	s.Operation("run_podsandbox", time.Second, errors.New("no"))
	s.Operation("list_containers", time.Second, nil)
	s.UserNamespaced(nil)
	s.UserNamespaced(errors.New("no"))
	s.PodStarted(time.Second)
	for _, kind := range []string{"app", "init", "ephemeral", "other"} {
		s.ContainerStarted(kind, nil)
	}
	for _, err := range []error{
		errdefs.ErrNotFound, errdefs.ErrUnavailable, context.DeadlineExceeded, context.Canceled, errors.New("no"),
	} {
		s.ContainerStarted("app", fmt.Errorf("wrapped: %w", err))
	}
	s.ManifestsRejected(3)
	s.ExitSeen(-time.Second)
	s.Probe(probes.Observation{
		Namespace: "ns",
		Pod:       "p",
		UID:       "u",
		Container: "c",
		Kind:      probes.Readiness,
		Result:    probes.ResultFailed,
		Duration:  time.Second,
	})
	s.Probe(probes.Observation{
		Namespace: "ns",
		Pod:       "p",
		UID:       "u",
		Container: "c",
		Kind:      probes.Liveness,
		Action:    probes.ActionExec,
		Result:    probes.ResultSuccessful,
		Busy:      3 * time.Second,
	})
	s.Evicted("memory.available")
	s.Preempted("cpu")
	s.ShutdownTimes(time.Unix(1000, 5), time.Time{})
	s.EvictionStatsAge("memory.available", -time.Second)
	s.Hook(true, false)
	s.Hook(false, true)
	s.Hook(false, false)
	s.Running(func() (int, map[string]int) { return 2, map[string]int{"running": 5, "exited": 1} })
	s.ClaimsWorkedOn("PrepareResources", true, time.Second)
	s.DRADriverAsked("gpu.example.com", "/v1/M", "OK", time.Second)
	s.ResourceClaims(func(add func(driver string, n int)) { add("<any>", 7) })
	got := gather(t, s)
	for _, want := range []string{
		"kubelet_node_name{node=node1} 1",
		"dra_operations_duration_seconds{is_error=true,operation_name=PrepareResources} 1",
		"dra_grpc_operations_duration_seconds{driver_name=gpu.example.com,grpc_status_code=OK,method_name=/v1/M} 1",
		"dra_resource_claims_in_use{driver_name=<any>} 7",
		"berth_build_info{version=v1.2.3} 1",
		"kubelet_pod_worker_duration_seconds{operation_type=sync} 1",
		"berth_step_duration_seconds{outcome=done,step=sandbox} 1",
		"kubelet_admission_rejections_total{reason=OutOfcpu} 1",
		"kubelet_runtime_operations_total{operation_type=run_podsandbox} 2",
		"kubelet_runtime_operations_errors_total{operation_type=run_podsandbox} 1",
		"kubelet_runtime_operations_duration_seconds{operation_type=list_containers} 1",
		"kubelet_started_pods_total{} 2",
		"kubelet_started_pods_errors_total{} 1",
		"kubelet_started_user_namespaced_pods_total{} 2",
		"kubelet_started_user_namespaced_pods_errors_total{} 1",
		"kubelet_pod_start_duration_seconds{} 1",
		"kubelet_started_containers_total{container_type=container} 6",
		"kubelet_started_containers_total{container_type=init_container} 1",
		"kubelet_started_containers_total{container_type=ephemeral_container} 1",
		"kubelet_started_containers_errors_total{code=NotFound,container_type=container} 1",
		"kubelet_started_containers_errors_total{code=Unavailable,container_type=container} 1",
		"kubelet_started_containers_errors_total{code=DeadlineExceeded,container_type=container} 1",
		"kubelet_started_containers_errors_total{code=Canceled,container_type=container} 1",
		"kubelet_started_containers_errors_total{code=Unknown,container_type=container} 1",
		"berth_manifests_rejected{} 3",
		"berth_container_exit_seen_seconds{} 1",
		"prober_probe_total{container=c,namespace=ns,pod=p,pod_uid=u,probe_type=Readiness,result=failed} 1",
		"prober_probe_duration_seconds{container=c,namespace=ns,pod=p,probe_type=Readiness} 1",
		"berth_probe_exec_seconds_total{container=c,namespace=ns,pod=p,probe_type=Liveness} 3",
		"kubelet_lifecycle_handler_http_fallbacks_total{} 1",
		"kubelet_lifecycle_handler_sleep_terminated_total{} 1",
		"kubelet_evictions{eviction_signal=memory.available} 1",
		"kubelet_preemptions{preemption_signal=cpu} 1",
		"kubelet_graceful_shutdown_start_time_seconds{} 1000",
		"kubelet_graceful_shutdown_end_time_seconds{} 0",
		"kubelet_eviction_stats_age_seconds{eviction_signal=memory.available} 1",
		"kubelet_running_pods{} 2",
		"kubelet_running_containers{container_state=running} 5",
		"kubelet_running_containers{container_state=exited} 1",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not among what is gathered", want)
		}
	}
	for _, prefix := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, prefix) }) {
			t.Errorf("no %s", prefix)
		}
	}
}

func TestCertificates(t *testing.T) {
	s := New("n", "v")
	ends := time.Now().Add(time.Hour + time.Minute)
	failed := s.ClientCertificate(func() time.Time { return time.Time{} })
	failed()
	failed, rotated := s.ServerCertificate(func() time.Time { return ends })
	failed()
	failed()
	rotated(2 * time.Hour)
	got := gather(t, s)
	for _, want := range []string{
		"kubelet_certificate_manager_client_expiration_renew_errors{} 1",
		"kubelet_certificate_manager_client_ttl_seconds{} +Inf",
		"kubelet_certificate_manager_server_rotation_seconds{} 1",
		"kubelet_server_expiration_renew_errors{} 2",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not among what is gathered", want)
		}
	}
	left := func() (seconds float64) {
		for _, series := range gather(t, s) {
			if rest, ok := strings.CutPrefix(series, "kubelet_certificate_manager_server_ttl_seconds{} "); ok {
				_, _ = fmt.Sscan(rest, &seconds)
			}
		}
		return seconds
	}
	if n := left(); n <= 0 || n > 3660 {
		t.Errorf("%v seconds are left of an hour and a minute", n)
	}
	ends = time.Now().Add(-time.Hour)
	if n := left(); n > -3600 {
		t.Errorf("%v seconds are left of what was over an hour ago", n)
	}
}

func TestImages(t *testing.T) {
	s := New("n", "v")
	s.ImageCollected("space")
	s.ImageCollected("space")
	s.ImageCollected("age")
	s.ImageEnsured("IfNotPresent", "true", "false")
	got := gather(t, s)
	for _, want := range []string{
		"kubelet_image_garbage_collected_total{reason=space} 2",
		"kubelet_image_garbage_collected_total{reason=age} 1",
		"kubelet_image_manager_ensure_image_requests_total{" +
			"present_locally=true,pull_policy=IfNotPresent,pull_required=false} 1",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not among what is gathered: %q", want, slices.DeleteFunc(got, func(series string) bool {
				return !strings.Contains(series, "_image_")
			}))
		}
	}
}

// What can be aligned is counted from the start, with 0.
func TestAlignable(t *testing.T) {
	s := New("n", "v")
	const name = "kubelet_container_aligned_compute_resources"
	aligned := func() (out []string) {
		for _, series := range gather(t, s) {
			if short, ok := strings.CutPrefix(series, name); ok {
				out = append(out, short)
			}
		}
		return out
	}
	if got := aligned(); len(got) > 0 {
		t.Errorf("without a policy: %q", got)
	}
	s.Alignable()
	s.CPUsAlignable()
	s.CPUsAligned("physical_cpu", true)
	want := []string{
		"_count{boundary=numa_node,scope=container} 0", "_count{boundary=numa_node,scope=pod} 0",
		"_count{boundary=physical_cpu,scope=container} 0", "_count{boundary=uncore_cache,scope=container} 0",
		"_failure_count{boundary=numa_node,scope=container} 0", "_failure_count{boundary=numa_node,scope=pod} 0",
		"_failure_count{boundary=physical_cpu,scope=container} 1",
	}
	if got := aligned(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestForgetPod(t *testing.T) {
	s := New("n", "v")
	for _, pod := range []string{"p", "q"} {
		for _, kind := range []probes.Kind{probes.Readiness, probes.Liveness} {
			s.Probe(probes.Observation{
				Namespace: "ns",
				Pod:       pod,
				UID:       "uid-" + "x",
				Container: "c",
				Kind:      kind,
				Action:    probes.ActionExec,
				Result:    probes.ResultSuccessful,
			})
			s.Probe(probes.Observation{
				Namespace: "ns",
				Pod:       pod,
				UID:       "uid-y",
				Container: "c",
				Kind:      kind,
				Action:    probes.ActionExec,
				Result:    probes.ResultSuccessful,
			})
		}
	}
	s.ForgetPod("ns", "p", "uid-x")
	s.ForgetPod("ns", "nobody", "uid-z")
	for _, series := range gather(t, s) {
		if strings.Contains(series, "uid-x") ||
			!strings.HasPrefix(series, "prober_probe_total") && strings.Contains(series, "pod=p") {
			t.Errorf("%s is still there", series)
		}
	}
	if got := strings.Join(gather(t, s), "\n"); !strings.Contains(got, "uid-y") || !strings.Contains(got, "pod=q") {
		t.Error("another pod's series are gone, too")
	}
}

func TestSetsAreApart(t *testing.T) {
	a, b := New("a", "v"), New("b", "v")
	a.Rejected("OutOfcpu")
	if strings.Contains(strings.Join(gather(t, b), "\n"), "reason=OutOfcpu") {
		t.Error("two sets share their counters")
	}
}

// What the life of a pod leaves in the metrics has the kubelet's names and labels.
func TestLifecycle(t *testing.T) {
	s := New("node1", "v1.2.3")
	s.WorkerStarted(time.Second)
	s.StatusWritten(&v1.Pod{}, time.Second)
	s.SandboxRun("", time.Second, nil)
	s.SandboxRun("kata", time.Second, errors.New("no"))
	s.Relisted(time.Second)
	s.Relisted(time.Second)
	s.PodListed(time.Second)
	s.PodOrphaned()
	s.PodRestarted(true)
	s.RuntimeUp(func() bool { return false })
	s.ConfigInForce(func() (bool, int) { return true, 3 })
	s.CgroupOperation("create", time.Second)
	s.Storage("kubernetes.io/secret", "volume_mount", time.Second, nil)
	s.Storage("kubernetes.io/secret", "volume_mount", time.Second, errors.New("no"))
	s.Pods(true, func() map[PodKind]int {
		return map[PodKind]int{
			{Lifecycle: "sync", Wanted: true, Static: true, Active: true}: 2, {Lifecycle: "terminated", Wanted: true}: 3,
			{Lifecycle: "terminating", Active: true}: 1,
		}
	})
	s.Constants("hybrid", "v1.36.3+berth", []configs.Gate{
		{Name: "NodeLogQuery", Stage: "GA", Enabled: true}, {Name: "MemoryQoS", Stage: "ALPHA"},
	})
	got := gather(t, s)
	for _, want := range []string{
		"kubelet_pod_worker_start_duration_seconds{} 1",
		"kubelet_pod_status_sync_duration_seconds{} 1",
		"kubelet_run_podsandbox_duration_seconds{runtime_handler=} 1",
		"kubelet_run_podsandbox_duration_seconds{runtime_handler=kata} 1",
		"kubelet_run_podsandbox_errors_total{runtime_handler=kata} 1",
		"kubelet_pleg_relist_duration_seconds{} 2",
		"kubelet_pleg_relist_interval_seconds{} 1",
		"kubelet_desired_pods{static=true} 2", "kubelet_desired_pods{static=} 3",
		"kubelet_active_pods{static=true} 2", "kubelet_active_pods{static=} 1",
		"kubelet_working_pods{config=desired,lifecycle=sync,static=true} 2",
		"kubelet_working_pods{config=orphan,lifecycle=terminating,static=} 1",
		"kubelet_mirror_pods{} 2",
		"berth_runtime_up{} 0",
		"berth_config_error{} 1",
		"berth_config_pending_settings{} 3",
		"kubelet_pleg_pod_relist_duration_seconds{} 1",
		"kubelet_pleg_discard_events{} 0",
		"kubelet_orphaned_runtime_pods_total{} 1",
		"kubelet_restarted_pods_total{static=true} 1",
		"kubelet_cgroup_manager_duration_seconds{operation_type=create} 1",
		"storage_operation_duration_seconds{migrated=false,operation_name=volume_mount,status=success," +
			"volume_plugin=kubernetes.io/secret} 1",
		"storage_operation_duration_seconds{migrated=false,operation_name=volume_mount,status=fail-unknown," +
			"volume_plugin=kubernetes.io/secret} 1",
		"kubelet_cgroup_version{} 1",
		"kubernetes_feature_enabled{name=NodeLogQuery,stage=} 1", "kubernetes_feature_enabled{name=MemoryQoS,stage=ALPHA} 0",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
	if !slices.ContainsFunc(got, func(line string) bool {
		return strings.HasPrefix(line, "kubernetes_build_info{") && strings.Contains(line, "git_version=v1.36.3+berth") &&
			strings.Contains(line, "minor=36")
	}) {
		t.Errorf("no build info in %q", got)
	}
}
