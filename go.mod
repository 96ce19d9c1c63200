module github.com/berthd/berth

go 1.26.8

require (
	github.com/container-storage-interface/spec v1.13.0 // what storage drivers speak
	github.com/containerd/cgroups/v3 v3.1.3 // what containerd's shims measure
	github.com/containerd/containerd/api v1.11.1 // containerd's events, for runtimes whose CRI has none
	github.com/containerd/containerd/v2 v2.3.7 // images, and containers without the CRI
	github.com/containerd/continuity v0.5.0 // copies of directories of images
	github.com/containerd/errdefs v1.0.0 // one classification of runtime errors
	github.com/containerd/errdefs/pkg v0.3.0 // gRPC codes to errdefs
	github.com/containerd/nri v0.12.5 // plugins that change containers
	github.com/containerd/typeurl/v2 v2.3.0 // decoding containerd's events
	github.com/containernetworking/cni v1.3.1 // running CNI plugins
	github.com/coreos/go-systemd/v22 v22.7.0 // sd_notify and the watchdog
	github.com/cyphar/filepath-securejoin v0.7.0 // paths in images, whose links lead nowhere else
	github.com/distribution/reference v0.6.0 // image names
	github.com/fsnotify/fsnotify v1.10.1 // following logs
	github.com/go-logr/logr v1.4.4 // klog's text logger as a handler of slog
	github.com/godbus/dbus/v5 v5.2.2 // systemd-logind: go-systemd cannot read how long it waits for a delay lock
	github.com/google/go-cmp v0.7.0 // differences in tests
	github.com/moby/sys/mountinfo v0.7.2 // what is mounted beneath a pod
	github.com/moby/sys/signal v0.7.1 // names of stop signals
	github.com/opencontainers/cgroups v0.1.0 // cgroups v1 and v2, cgroupfs and systemd
	github.com/opencontainers/go-digest v1.0.0 // digests of images
	github.com/opencontainers/image-spec v1.1.1 // manifests and configs of images
	github.com/opencontainers/runtime-spec v1.3.0 // how an OCI runtime runs a container
	github.com/opencontainers/runtime-tools v0.9.1-0.20251114084447-edf4cb3d2116 // what NRI plugins change in a container's spec
	github.com/opencontainers/selinux v1.15.1 // SELinux labels of containers
	github.com/prometheus/client_golang v1.25.0 // metrics
	github.com/prometheus/client_model v0.6.3 // metrics that requests share
	github.com/rogpeppe/go-internal v1.16.0 // text scripts of the command line's tests
	github.com/spf13/cobra v1.10.2 // the command line
	github.com/spf13/pflag v1.0.10 // the kubelet's flags
	github.com/vishvananda/netlink v1.3.1 // bridges of the test environments
	go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc v0.71.0 // spans of calls to the runtime, as the kubelet's
	go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp v0.71.0 // spans of requests, as the kubelet's
	go.opentelemetry.io/otel v1.46.0 // spans
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc v1.46.0 // sending spans
	go.opentelemetry.io/otel/sdk v1.46.0 // sampling and batching spans
	go.opentelemetry.io/otel/trace v1.46.0 // spans
	go.opentelemetry.io/proto/otlp v1.11.0 // a collector of spans, in tests
	go.uber.org/goleak v1.3.0 // no goroutine is left by a test
	go.yaml.in/yaml/v3 v3.0.6 // lines and aliases of manifests
	golang.org/x/sync v0.24.0 // groups of goroutines
	golang.org/x/sys v0.49.0 // openat2, mounts, inotify, locks
	golang.org/x/term v0.47.0 // raw terminals of exec and attach
	golang.org/x/time v0.16.0 // the rate limit of the pod resources API
	golang.org/x/tools v0.49.0 // text archives of the scenarios
	google.golang.org/grpc v1.85.0 // the CRI and gRPC probes
	google.golang.org/protobuf v1.36.12 // copies of CRI messages, and their JSON
	k8s.io/api v0.36.3 // the API's types
	k8s.io/apimachinery v0.36.3 // quantities, decoding, upgraded connections
	k8s.io/apiserver v0.36.3 // the known feature gates, in a test
	k8s.io/client-go v0.36.3 // the client side of exec, attach and port-forward, and of the API server
	k8s.io/component-base v0.36.3 // the logging part of the configuration
	k8s.io/component-helpers v0.36.3 // a pod's requests and limits
	k8s.io/cri-api v0.36.3 // the CRI
	k8s.io/cri-streaming v0.36.3 // a runtime's streaming server
	k8s.io/klog/v2 v2.140.0 // what libraries log goes to our log
	k8s.io/kubelet v0.36.3 // KubeletConfiguration
	k8s.io/kubernetes v1.36.3 // defaults and validation of pods, nothing else
	k8s.io/mount-utils v0.36.3 // the mount interface and its fake
	k8s.io/pod-security-admission v0.36.3 // the Pod Security Standards
	k8s.io/streaming v0.36.3 // SPDY connections
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // pointers, exit codes of streamed commands
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // strict decoding of manifests
	sigs.k8s.io/yaml v1.6.0 // YAML to JSON and back
	tags.cncf.io/container-device-interface v1.1.1 // devices by the names that vendors give them
)

require (
	github.com/containerd/ttrpc v1.2.9
	github.com/prometheus/common v0.72.0
)

require (
	cyphar.com/go-pathrs v0.2.5 // indirect
	github.com/Microsoft/go-winio v0.6.3-0.20251027160822-ad3df93bed29 // indirect
	github.com/Microsoft/hcsshim v0.15.0-rc.4 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/blang/semver/v4 v4.0.0 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/containerd/fifo v1.1.0 // indirect
	github.com/containerd/log v0.2.0 // indirect
	github.com/containerd/platforms v1.0.0-rc.5 // indirect
	github.com/containerd/plugin v1.1.0 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/emicklei/go-restful/v3 v3.13.0 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/fxamacker/cbor/v2 v2.9.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-openapi/jsonpointer v1.0.0 // indirect
	github.com/go-openapi/jsonreference v1.0.0 // indirect
	github.com/go-openapi/swag v0.28.0 // indirect
	github.com/go-openapi/swag/cmdutils v0.28.0 // indirect
	github.com/go-openapi/swag/conv v0.28.0 // indirect
	github.com/go-openapi/swag/fileutils v0.28.0 // indirect
	github.com/go-openapi/swag/jsonutils v0.28.0 // indirect
	github.com/go-openapi/swag/loading v0.28.0 // indirect
	github.com/go-openapi/swag/mangling v0.28.0 // indirect
	github.com/go-openapi/swag/netutils v0.28.0 // indirect
	github.com/go-openapi/swag/pools v0.28.0 // indirect
	github.com/go-openapi/swag/stringutils v0.28.0 // indirect
	github.com/go-openapi/swag/typeutils v0.28.0 // indirect
	github.com/go-openapi/swag/yamlutils v0.28.0 // indirect
	github.com/google/gnostic-models v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.30.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/klauspost/compress v1.20.1 // indirect
	github.com/knqyf263/go-plugin v0.9.0 // indirect
	github.com/moby/locker v1.0.1 // indirect
	github.com/moby/spdystream v0.5.1 // indirect
	github.com/moby/sys/capability v0.4.0 // indirect
	github.com/moby/sys/sequential v0.6.0 // indirect
	github.com/moby/sys/user v0.4.1 // indirect
	github.com/moby/sys/userns v0.2.1 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/mxk/go-flowrate v0.0.0-20140419014527-cca7078d478f // indirect
	github.com/pelletier/go-toml/v2 v2.3.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	github.com/sirupsen/logrus v1.10.2 // indirect
	github.com/tetratelabs/wazero v1.11.0 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.46.0 // indirect
	go.opentelemetry.io/otel/metric v1.46.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/oauth2 v0.37.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260819154853-08b0e4226688 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260825221802-da73d73af1c5 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	k8s.io/apiextensions-apiserver v0.36.3 // indirect
	k8s.io/controller-manager v0.36.3 // indirect
	k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2 // indirect
	tags.cncf.io/container-device-interface/specs-go v1.1.1 // indirect
)
