package configs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

const berthHeader = "apiVersion: berth.dev/v1alpha1\nkind: BerthConfiguration\n"

// node is a config file, drop-ins and a command line in a temporary directory.
type node struct {
	file    string
	dropIns map[string]string
	args    []string
}

// load writes the node's files and loads them. It cuts the directory's name off the messages.
func (n node) load(t *testing.T) (c *Config, warnings []string, err string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.yaml"), n.file)
	drops := filepath.Join(dir, "d")
	if e := os.Mkdir(drops, 0o755); e != nil {
		t.Fatal(e)
	}
	for name, text := range n.dropIns {
		write(t, filepath.Join(drops, name), text)
	}
	c, ws, e := Load(Options{File: filepath.Join(dir, "config.yaml"), DropInDir: drops, Flags: parse(t, n.args...)})
	for _, w := range ws {
		warnings = append(warnings, strings.ReplaceAll(w.String(), dir+"/", ""))
	}
	if e != nil {
		err = strings.ReplaceAll(e.Error(), dir+"/", "")
	}
	return c, warnings, err
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func parse(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return fs
}

func TestDefaultsWithoutAnyFile(t *testing.T) {
	c, warnings, err := node{}.load(t)
	if err != "" || len(warnings) > 0 {
		t.Fatalf("got error %q, warnings %q", err, warnings)
	}
	for name, ok := range map[string]bool{
		"static pod path":      c.Kubelet.StaticPodPath == "/etc/kubernetes/manifests",
		"no anonymous access":  !*c.Kubelet.Authentication.Anonymous.Enabled,
		"no read-only port":    c.Kubelet.ReadOnlyPort == 0,
		"cgroup v1 is allowed": !*c.Kubelet.FailCgroupV1,
		"sync frequency":       c.Kubelet.SyncFrequency.Duration == time.Minute,
		"eviction":             c.Kubelet.EvictionHard["memory.available"] == "100Mi",
		"endpoint":             c.Kubelet.ContainerRuntimeEndpoint == "unix:///run/containerd/containerd.sock",
		"pulls one by one":     *c.Kubelet.SerializeImagePulls,
		"enforces pods":        slices.Equal(c.Kubelet.EnforceNodeAllocatable, []string{"pods"}),
		"pids":                 *c.Kubelet.PodPidsLimit == -1,
		"root directory":       c.RootDir == "/var/lib/kubelet",
		"certificates":         c.CertDir == "/var/lib/kubelet/pki",
		"seccomp profiles":     c.SeccompRoot() == "/var/lib/kubelet/seccomp",
		"dead containers":      c.ContainerGC == ContainerGCOptions{MaxPerContainer: 1, MaxTotal: -1},
		"socket":               c.Berth.Socket == "/run/berth/berth.sock",
		"group":                c.Berth.SocketGroup == "berth",
		"runtime":              c.Berth.Runtime == RuntimeAuto && c.Berth.Sandbox.Pause == PauseAuto,
		"CNI": c.Berth.CNI.ConfDir == "/etc/cni/net.d" &&
			slices.Equal(c.Berth.CNI.BinDirs, []string{"/opt/cni/bin", "/usr/lib/cni"}),
		"relist":                 c.Berth.RelistPeriod.Duration == 30*time.Second,
		"stall timeout":          c.Berth.ImagePullStallTimeout.Duration == 2*time.Minute,
		"parallel starts":        c.Berth.MaxParallelPodStarts >= 4 && c.Berth.MaxParallelPodStarts <= 8,
		"crash delays":           delays(c, 10*time.Second, 5*time.Minute, 10*time.Minute),
		"nothing is set":         !c.IsSet("cgroupDriver") && !c.IsSet("berth:socket"),
		"gate of a beta feature": c.GateEnabled("RotateKubeletServerCertificate"),
	} {
		if !ok {
			t.Errorf("default is wrong: %s", name)
		}
	}
}

func TestLaterSourcesWin(t *testing.T) {
	c, warnings, err := node{
		file: header + "port: 1\nreadOnlyPort: 11\nhealthzPort: 21\nstaticPodPath: m\nallowedUnsafeSysctls: [a, b]\n" +
			"authentication: {anonymous: {enabled: true}, x509: {clientCAFile: ca.crt}}\nfeatureGates: " +
			"{NodeLogQuery: " +
			"true, DynamicResourceAllocation: true}\n" +
			"---\n" + berthHeader + "cni: {confDir: net.d, binDirs: [/a]}\nrelistPeriod: 5s\nruntime: remote\n",
		dropIns: map[string]string{
			"10-a.conf": header +
				"readOnlyPort: 12\nhealthzPort: 22\nauthentication: {anonymous: {enabled: false}}\n" +
				"allowedUnsafeSysctls: [c]\n",
			"20-b.conf":        header + "healthzPort: 23\nport: null\n---\n" + berthHeader + "cni: {binDirs: [/b]}\n",
			"20-b.conf.bak":    "not read",
			"sub/30-more.conf": header + "podPidsLimit: -7\n",
		},
		args: []string{
			"--healthz-port=24", "--feature_gates=NodeLogQuery=true", "--feature-gates", "ContainerCheckpoint=true",
			"--fail-swap-on=false", "--seccomp-default",
		},
	}.load(t)
	if err != "" {
		t.Fatal(err)
	}
	k := c.Kubelet
	got := map[string]any{
		"port":                   k.Port,
		"readOnlyPort":           k.ReadOnlyPort,
		"healthzPort":            *k.HealthzPort,
		"anonymous":              *k.Authentication.Anonymous.Enabled,
		"ca":                     filepath.Base(k.Authentication.X509.ClientCAFile),
		"sysctls":                k.AllowedUnsafeSysctls,
		"gates":                  k.FeatureGates,
		"swap":                   *k.FailSwapOn,
		"seccomp":                *k.SeccompDefault,
		"pids":                   *k.PodPidsLimit,
		"bins":                   c.Berth.CNI.BinDirs,
		"relist":                 c.Berth.RelistPeriod.Duration,
		"manifests are absolute": filepath.IsAbs(k.StaticPodPath),
		"confDir is absolute":    filepath.IsAbs(c.Berth.CNI.ConfDir),
	}
	want := map[string]any{
		"port":         int32(10250),
		"readOnlyPort": int32(12),
		"healthzPort":  int32(24),
		"anonymous":    false,
		"ca":           "ca.crt",
		"sysctls":      []string{"c"},
		"gates": map[string]bool{
			"NodeLogQuery":              true,
			"DynamicResourceAllocation": true,
			"ContainerCheckpoint":       true,
		},
		"swap":                   false,
		"seccomp":                true,
		"pids":                   int64(-1),
		"bins":                   []string{"/b"},
		"relist":                 5 * time.Second,
		"manifests are absolute": true,
		"confDir is absolute":    true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for path, suffix := range map[string]string{
		"readOnlyPort": "10-a.conf:3", "healthzPort": "--healthz-port", "port": "", "berth:cni.binDirs": "20-b.conf:8",
		"berth:relistPeriod": "config.yaml:14", "featureGates.NodeLogQuery": "config.yaml:9",
	} {
		if origin := c.Origin(path); !strings.HasSuffix(origin, suffix) || (suffix == "") != (origin == "") {
			t.Errorf("origin of %s is %q, want …%q", path, origin, suffix)
		}
	}
	for _, want := range []string{"cni.confDir: no effect", "cni.binDirs: no effect", "authentication: no effect"} {
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, want) }) {
			t.Errorf("no warning %q in %q", want, warnings)
		}
	}
	if len(warnings) != 3 {
		t.Errorf("warnings %q", warnings)
	}
}

func TestWarnings(t *testing.T) {
	for name, test := range map[string]struct {
		node
		want []string
	}{
		"unknown fields": {
			node{file: header + "maxpods: 5\nauthentication:\n  x509: {clientCAfile: x}\n---\n" + berthHeader +
				"cni: {dir: /x}\n"},
			[]string{
				`config.yaml:3: maxpods: unknown field of KubeletConfiguration, ignored (did you mean "maxPods"?)`,
				`config.yaml:5: authentication.x509.clientCAfile: unknown field of KubeletConfiguration, ` +
					`ignored (did ` +
					`you mean "clientCAFile"?)`,
				`config.yaml:9: cni.dir: unknown field of BerthConfiguration, ignored`,
			},
		},
		"a key given twice": {
			node{file: header + "maxPods: 5\nmaxPods: 6\n"},
			[]string{"config.yaml:4: maxPods: the key is given twice, the last one counts"},
		},
		"fields without effect": {
			node{file: header + "hairpinMode: hairpin-veth\nvolumeStatsAggPeriod: 5s\n"},
			[]string{
				"config.yaml:3: hairpinMode: no effect: hairpin traffic is set up by the CNI plugin",
				"config.yaml:4: volumeStatsAggPeriod: no effect: volumes are measured when somebody asks",
			},
		},
		"their defaults, as kubeadm writes them": {
			node{file: header +
				"cpuManagerPolicy: none\ncpuManagerReconcilePeriod: 0s\nevictionPressureTransitionPeriod: 0s\n" +
				"memorySwap: {}\nlogging: {flushFrequency: 0, options: {json: {infoBufferSize: \"0\"}}, " +
				"verbosity: 0}\n"},
			nil,
		},
		"flags": {
			node{args: []string{
				"--hairpin-mode=none", "--pod-infra-container-image=x", "--storage_driver_db", "d", "--node-labels=a=b",
			}},
			[]string{
				"--hairpin-mode: hairpinMode: no effect: hairpin traffic is set up by the CNI plugin",
				"--pod-infra-container-image: no effect: the runtime owns the pause image",
				"--storage-driver-db: no effect: it belongs to cAdvisor, which berth does not contain",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, got, err := test.load(t)
			if err != "" || c == nil {
				t.Fatalf("error %q", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	for name, test := range map[string]struct {
		node
		want string
	}{
		"not YAML": {node{file: header + "a: [\n"}, "parse config file config.yaml: yaml: line "},
		"a second document broken": {
			node{file: header + "---\n" + berthHeader + "\tx: y\n"}, "parse config file config.yaml: yaml: line 5",
		},
		"a list": {node{file: "- a\n"}, "config.yaml:1: the document is not an object"},
		"no kind": {
			node{file: "port: 1\n"}, `config.yaml:1: kind "" of apiVersion "" is not a configuration`,
		},
		"another kind": {
			node{file: "---\napiVersion: v1\nkind: Pod\n"}, `config.yaml:2: kind "Pod" of apiVersion "v1"`,
		},
		"another version": {
			node{file: strings.Replace(header, "v1beta1", "v1", 1)}, "is not a configuration",
		},
		"two of a kind": {
			node{file: header + "---\n" + header},
			"config.yaml:4: a second KubeletConfiguration in one file, the first begins at line 1",
		},
		"too large": {node{file: header + strings.Repeat("#", maxFileSize)}, "is larger than"},
		"binary":    {node{file: "\x00\x01\x02"}, "config.yaml"},
		"a wrong type": {
			node{file: header + "port: abc\n"},
			`config.yaml:3: port: invalid value "abc": must be a whole number in the range of int32`,
		},
		"too large a number": {
			node{file: header + "port: 99999999999\n"},
			"config.yaml:3: port: invalid value 99999999999: must be a whole number",
		},
		"an object for a list": {
			node{file: header + "clusterDNS: {a: b}\n"}, "config.yaml:3: clusterDNS: invalid value",
		},
		"a wrong list item": {
			node{file: header + "clusterDNS:\n- 10.0.0.1\n- x: z\n"},
			`config.yaml:5: clusterDNS[1]: invalid value {"x":"z"}: must be a string`,
		},
		"a number as duration": {
			node{file: header + "syncFrequency: 10\n"},
			`config.yaml:3: syncFrequency: invalid value 10: must be a duration such as "1m30s"`,
		},
		"a wrong map value": {
			node{file: header + "featureGates:\n  ContainerCheckpoint: maybe\n"},
			"config.yaml:4: featureGates[ContainerCheckpoint]: invalid value",
		},
		"a drop-in with a fault": {
			node{dropIns: map[string]string{"a.conf": header + "port: -1\n"}},
			"d/a.conf:3: port: -1 must be between 1 and 65535",
		},
		"a drop-in that is not YAML": {node{dropIns: map[string]string{"a.conf": "\t"}}, "parse config file d/a.conf"},
		"run once":                   {node{file: header + "runOnce: true\n"}, "config.yaml:3: runOnce: "},
		"run once by flag":           {node{args: []string{"--runonce"}}, "--runonce: runOnce: "},
		"an unknown gate": {
			node{file: header + "featureGates: {NoSuchThing: true}\n"},
			"config.yaml:3: featureGates[NoSuchThing]: unknown feature gate",
		},
		"a locked gate": {
			node{args: []string{"--feature-gates=NodeLogQuery=false"}},
			"--feature-gates: featureGates[NodeLogQuery]: the gate is locked to true since the feature is GA",
		},
		"cgroup driver": {
			node{args: []string{"--cgroup-driver=cgroup"}},
			`--cgroup-driver: cgroupDriver: "cgroup" is not supported: must be one of "cgroupfs", "systemd"`,
		},
		"cgroup root": {node{file: header + "cgroupRoot: /a/../b\n"}, "config.yaml:3: cgroupRoot: "},
		"a negative duration": {
			node{file: header + "syncFrequency: -1s\n"}, "config.yaml:3: syncFrequency: -1s must be greater than zero",
		},
		"address": {
			node{file: header + "address: localhost\n"}, `config.yaml:3: address: "localhost" is not an IP address`,
		},
		"endpoint": {
			node{file: header + "containerRuntimeEndpoint: tcp://1.2.3.4:5\n"},
			"config.yaml:3: containerRuntimeEndpoint: ",
		},
		"quota period": {
			node{file: header + "cpuCFSQuotaPeriod: 2s\n"}, "cpuCFSQuotaPeriod: 2s must be between 1ms and 1s",
		},
		"percentages": {
			node{file: header + "imageGCHighThresholdPercent: 101\n"},
			"imageGCHighThresholdPercent: 101 must be between 0 and 100",
		},
		"thresholds the wrong way": {
			node{file: header + "imageGCHighThresholdPercent: 10\n"},
			"imageGCLowThresholdPercent: 80 must be less than",
		},
		"eviction percentage": {
			node{file: header + "evictionHard: {memory.available: 120%}\n"},
			"config.yaml:3: evictionHard[memory.available]: ",
		},
		"eviction signal": {
			node{args: []string{"--eviction-hard=mem<1Gi"}}, "--eviction-hard: evictionHard[mem]: ",
		},
		"an amount of nothing": {
			node{file: header + "evictionHard: {memory.available: \"0\"}\n"},
			`evictionHard[memory.available]: "0" must be greater than zero`,
		},
		"a negative amount": {
			node{file: header + "evictionSoft: {memory.available: -1Gi}\n"}, "evictionSoft[memory.available]: ",
		},
		"a reclaim of nothing": {
			node{file: header + "evictionMinimumReclaim: {nodefs.available: 0%}\n"},
			`evictionMinimumReclaim[nodefs.available]: "0%" must be greater than zero`,
		},
		"a reclaim of an unknown signal": {
			node{file: header + "evictionMinimumReclaim: {nodefs: 1Gi}\n"}, "evictionMinimumReclaim[nodefs]: ",
		},
		"a grace period that is none": {
			node{file: header + "evictionSoftGracePeriod: {memory.available: soon}\n"},
			`evictionSoftGracePeriod[memory.available]: "soon" is not a duration`,
		},
		"soft without grace": {
			node{file: header + "evictionSoft: {memory.available: 1Gi}\n"}, "needs a grace period",
		},
		"enforcement of nobody": {
			node{file: header + "enforceNodeAllocatable: [none, pods]\n"},
			`enforceNodeAllocatable: "none" must stand alone`,
		},
		"enforcement without cgroup": {
			node{file: header + "enforceNodeAllocatable: [pods, kube-reserved]\n"}, "kubeReservedCgroup: must be set",
		},
		"enforcement without qos": {
			node{file: header + "cgroupsPerQOS: false\n"}, `enforceNodeAllocatable[0]: "pods" needs cgroupsPerQOS`,
		},
		"options of no CPU manager": {
			node{file: header + "cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n"},
			`config.yaml:3: cpuManagerPolicyOptions: the policy "none" has no options`,
		},
		"reserved resource": {node{file: header + "systemReserved: {gpu: 1}\n"}, "systemReserved[gpu]"},
		"reserved memory of another kind": {
			node{file: header + "reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]\n"},
			`reservedMemory[0].limits[cpu]: must be "memory" or "hugepages-SIZE"`,
		},
		"no reserved memory": {
			node{file: header + "reservedMemory: [{numaNode: 0, limits: {memory: 0}}]\n"},
			"reservedMemory[0].limits[memory]: 0 must be greater than 0",
		},
		"reserved memory twice": {
			node{file: header + "reservedMemory:\n" + strings.Repeat("- {numaNode: 1, limits: {memory: 1Gi}}\n", 2)},
			"reservedMemory[1].limits[memory]: NUMA node 1 has two amounts",
		},
		"parallel pulls": {
			node{file: header + "serializeImagePulls: true\nmaxParallelImagePulls: 3\n"},
			"config.yaml:4: maxParallelImagePulls: ",
		},
		"log directory": {node{file: header + "podLogsDir: /var/../log\n"}, "podLogsDir: "},
		"taint": {
			node{args: []string{"--register-with-taints=a=b:Never"}},
			`--register-with-taints: registerWithTaints[0].effect: "Never" is not supported`,
		},
		"a taint twice": {
			node{args: []string{"--register-with-taints=a=b:NoSchedule,a=b:NoExecute,a=c:NoSchedule"}},
			`registerWithTaints[2]: there is another taint with key "a" and effect "NoSchedule"`,
		},
		"runtime": {
			node{file: berthHeader + "runtime: docker\n"}, `config.yaml:3: runtime: "docker" is not supported`,
		},
		"pause": {
			node{file: berthHeader + "sandbox: {pause: maybe}\n"}, "config.yaml:3: sandbox.pause: ",
		},
		"socket too long": {
			node{file: berthHeader + "socket: /" + strings.Repeat("a", 107) + "\n"}, "config.yaml:3: socket: ",
		},
		"stall timeout too short": {
			node{file: berthHeader + "imagePullStallTimeout: 10ms\n"}, "config.yaml:3: imagePullStallTimeout: ",
		},
		"relist too often": {
			node{file: berthHeader + "relistPeriod: 1ms\n"}, "config.yaml:3: relistPeriod: ",
		},
		"crash delay too short": {
			node{file: berthHeader + "crashLoopBackOff: {initialDelay: 10ms}\n"},
			"config.yaml:3: crashLoopBackOff.initialDelay: 10ms must be 1s or more",
		},
		"crash delays the wrong way": {
			node{file: berthHeader + "crashLoopBackOff: {initialDelay: 1m, maxDelay: 30s}\n"},
			"crashLoopBackOff.initialDelay: 1m0s must not be more than maxDelay",
		},
		"crash bounds the wrong way": {
			node{file: berthHeader + "crashLoopBackOff: {podMinDelay: 10m}\n"},
			"crashLoopBackOff.podMinDelay: 10m0s must not be more than podMaxDelay",
		},
		"clean exits": {
			node{file: berthHeader + "crashLoopBackOff: {cleanExits: Never}\n"},
			`crashLoopBackOff.cleanExits: "Never" is not supported`,
		},
		"size of the history": {
			node{file: berthHeader + "history: {maxSize: 1Ki}\n"}, `history.maxSize: "1Ki" must be a quantity of 1Mi or more`,
		},
		"no size of the history": {
			node{file: berthHeader + "history: {maxSize: 10%}\n"}, `history.maxSize: "10%" must be a quantity`,
		},
		"age of the history": {
			node{file: berthHeader + "history: {maxAge: 1s}\n"}, "history.maxAge: 1s must be 1m or more",
		},
		"parallel starts": {
			node{file: berthHeader + "maxParallelPodStarts: -1\n"}, "config.yaml:3: maxParallelPodStarts: ",
		},
		"a cluster's bootstrap": {
			node{args: []string{"--bootstrap-kubeconfig=/x"}}, "--bootstrap-kubeconfig: needs --kubeconfig",
		},
		"cloud provider": {node{args: []string{"--cloud-provider=aws"}}, "--cloud-provider: "},
		"node IP": {
			node{args: []string{"--node-ip=1.2.3.4,5.6.7.8"}}, "--node-ip: want one address, or one of each family",
		},
		"a label of somebody else": {
			node{args: []string{"--node-labels=node-role.kubernetes.io/master="}}, "--node-labels: a node may not set",
		},
		"contention without a lock": {
			node{args: []string{"--exit-on-lock-contention"}}, "--exit-on-lock-contention: needs --lock-file",
		},
		"half a credential provider": {
			node{args: []string{"--image-credential-provider-config=/x"}}, "must be given together",
		},
		"several faults are all said": {node{file: header + "port: 0x\nmaxPods: no\n"}, "config.yaml:4: maxPods"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, err := test.load(t)
			if c != nil || !strings.Contains(err, test.want) {
				t.Errorf("got error %q, want %q", err, test.want)
			}
		})
	}
}

func TestFlagsThatDoNotParse(t *testing.T) {
	for _, arg := range []string{
		"--max-pods=many", "--fail-swap-on=perhaps", "--sync-frequency=1", "--address=here",
		"--eviction-hard=memory.available=1Gi", "--feature-gates=A",
		"--register-with-taints=a=b", "--reserved-memory=memory=1Gi", "--vmodule=x", "--no-such-flag",
	} {
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		AddFlags(fs)
		if err := fs.Parse([]string{arg}); err == nil {
			t.Errorf("%s is accepted", arg)
		}
	}
}

func TestFlagKinds(t *testing.T) {
	c, _, err := node{args: []string{
		"--register-with-taints=a=b:NoSchedule,c:NoExecute", "--reserved-memory=0:memory=1Gi,hugepages-1Gi=2Gi",
		"--reserved-memory=1:memory=2Gi",
		"--manifest-url-header=a:1,b:2", "--manifest-url-header=a:3", "--cluster-dns=10.0.0.1,10.0.0.2",
		"--system-reserved=cpu=100m,memory=1Gi",
		"-v", "4", "--vmodule=x=3", "--node-ip=10.0.0.1,fd00::1", "--node-labels=a=b,c=", "--root-dir=/r",
		"--lock-file=/l", "--exit-on-lock-contention",
		"--logging-format=text", "--maximum-dead-containers=7", "--cni-bin-dir=/x,/y",
	}}.load(t)
	if err != "" {
		t.Fatal(err)
	}
	k := c.Kubelet
	got := []any{
		k.RegisterWithTaints, len(k.ReservedMemory), k.StaticPodURLHeader, k.ClusterDNS, k.SystemReserved,
		int(k.Logging.Verbosity), k.Logging.VModule[0].FilePattern,
		len(c.NodeIPs), c.NodeLabels, c.RootDir, c.CertDir, c.Lock, k.Logging.Format, c.ContainerGC.MaxTotal,
		c.Berth.CNI.BinDirs,
	}
	want := []any{
		[]corev1.Taint{{Key: "a", Value: "b", Effect: "NoSchedule"}, {Key: "c", Effect: "NoExecute"}},
		2,
		map[string][]string{"a": {"1", "3"}, "b": {"2"}},
		[]string{"10.0.0.1", "10.0.0.2"},
		map[string]string{"cpu": "100m", "memory": "1Gi"},
		4, "x",
		2,
		map[string]string{"a": "b", "c": ""},
		"/r", "/r/pki",
		LockOptions{File: "/l", ExitOnContention: true},
		"text", 7,
		[]string{"/x", "/y"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFilesThatAreMissing(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "no")
	for name, o := range map[string]Options{
		"a named file":       {File: missing},
		"a named directory":  {DropInDir: missing},
		"--config":           {Flags: parse(t, "--config="+missing)},
		"--config-dir":       {Flags: parse(t, "--config-dir="+missing)},
		"a file for a dir":   {Flags: parse(t, "--config=/")},
		"a file as dir":      {DropInDir: "/etc/passwd"},
		"a dir below a file": {Flags: parse(t, "--config-dir=/etc/passwd/x")},
	} {
		if _, _, err := Load(o); err == nil {
			t.Errorf("%s that does not exist is accepted", name)
		}
	}
}

// TestEveryFieldOfAStockFile checks that a stock file works unchanged: no field of the kubelet's
// own default configuration is unknown, wrong or gives a warning.
func TestEveryFieldOfAStockFile(t *testing.T) {
	standard := &Config{}
	setKubeletDefaults(&standard.Kubelet)
	data, err := sigsMarshal(standard.Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	c, warnings, msg := node{file: string(data)}.load(t)
	if msg != "" || len(warnings) > 0 {
		t.Fatalf("error %q, warnings %q", msg, warnings)
	}
	standard.Kubelet.StaticPodPath = DefaultStaticPodPath
	if diff := cmp.Diff(standard.Kubelet, c.Kubelet); diff != "" {
		t.Error(diff)
	}
}

// TestPathsWithoutEffectExist checks that the list has no misspelled fields.
func TestPathsWithoutEffectExist(t *testing.T) {
	for path := range WithoutEffect() {
		if !fieldExists(path) {
			t.Errorf("KubeletConfiguration has no field %s", path)
		}
	}
	for _, spec := range fieldFlags() {
		if !strings.HasPrefix(spec.path, berthPrefix) && !fieldExists(spec.path) {
			t.Errorf("--%s: KubeletConfiguration has no field %s", spec.name, spec.path)
		}
	}
}

func TestNodeName(t *testing.T) {
	for override, want := range map[string]string{" Edge-1.Example ": "edge-1.example", "a_b": "", "  ": "", "-x": ""} {
		got, err := NodeName(&Config{Flags: Flags{HostnameOverride: override}})
		if got != want || (err != nil) != (want == "") {
			t.Errorf("NodeName(%q) = %q, %v; want %q", override, got, err, want)
		}
	}
	if name, err := NodeName(&Config{}); err == nil && name != strings.ToLower(name) {
		t.Errorf("name %q is not in lower case", name)
	}
}

func TestGateEnabled(t *testing.T) {
	c, _, err := node{file: header + "featureGates: {AllAlpha: true, AllBeta: false, MemoryQoS: false}\n"}.load(t)
	if err != "" {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"APIServingWithRoutine":          true,
		"MemoryQoS":                      false,
		"RotateKubeletServerCertificate": false,
		"NodeLogQuery":                   true,
		"NoSuchThing":                    false,
	} {
		if got := c.GateEnabled(name); got != want {
			t.Errorf("gate %s is %t, want %t", name, got, want)
		}
	}
}

// A gate that changes nothing here is warned of, if it is set to another value than its default.
func TestGatesWithoutEffect(t *testing.T) {
	_, warnings, err := node{
		file: header + "featureGates: {SELinuxMount: true, MemoryQoS: false, NodeLogQuery: true}\n",
	}.load(t)
	want := []string{"config.yaml:3: featureGates[SELinuxMount]: no effect: nothing on this node depends on the gate"}
	if err != "" || !slices.Equal(warnings, want) {
		t.Errorf("error %q, warnings %q, want %q", err, warnings, want)
	}
}
