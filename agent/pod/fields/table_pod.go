package fields

import v1 "k8s.io/api/core/v1"

// annotationsPath is the map of annotations; a node acts on some of its keys.
const annotationsPath = "metadata.annotations"

// annotationKeys are the annotations that a node acts on, or did in the past.
func annotationKeys() []string {
	return []string{
		v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "*",
		"kubernetes.io/egress-bandwidth",
		"kubernetes.io/ingress-bandwidth",
		"container.seccomp.security.alpha.kubernetes.io/*",
		"seccomp.security.alpha.kubernetes.io/pod",
		"scheduler.alpha.kubernetes.io/tolerations",
	}
}

// metadataRules are about a pod's metadata.
func metadataRules() []rule {
	return []rule{
		works("test/integration/TestFields/metadata",
			"metadata.{name,namespace,uid,generation,labels,annotations,annotations[*]}"),
		where(kernelAppArmor, "agent/pod/generate/TestAppArmor",
			"metadata.annotations[container.apparmor.security.beta.kubernetes.io/*]"),
		where("the CNI config has the plugin bandwidth", "test/integration/TestBandwidth",
			"metadata.annotations[kubernetes.io/{egress,ingress}-bandwidth]"),
		noEffect(Nowhere, "Kubernetes no longer reads this annotation: set securityContext.seccompProfile",
			"metadata.annotations[{container.seccomp.security.alpha.kubernetes.io/*,"+
				"seccomp.security.alpha.kubernetes.io/pod}]"),
		noEffect(Nowhere, "Kubernetes no longer reads this annotation: set spec.tolerations",
			"metadata.annotations[scheduler.alpha.kubernetes.io/tolerations]"),
		noEffect(ControlPlane, "a pod from a manifest has the name that the manifest says", "metadata.generateName"),
		noEffect(ControlPlane, "a pod from a manifest is deleted by removing the manifest",
			"metadata.{deletionTimestamp,deletionGracePeriodSeconds}"),
		noEffect(ControlPlane, "an API server keeps it",
			"metadata.{selfLink,resourceVersion,creationTimestamp}",
			"metadata.{ownerReferences,finalizers,managedFields}..."),
	}
}

// podRules are about the pod as a whole.
func podRules() []rule {
	return []rule{
		works("test/integration/TestFields/restart policy", "spec.restartPolicy"),
		works("test/integration/TestLife/grace", "spec.terminationGracePeriodSeconds"),
		works("test/integration/TestLifecycle/deadline", "spec.activeDeadlineSeconds"),
		where("it names this node: a pod from a manifest runs on the node that reads the manifest",
			"agent/source/TestHints/another node", "spec.nodeName").inCluster(Works, ""),
		works("test/integration/TestSecurity/refused", "spec.os.name"),
		where("somebody sets the condition through an API server: a pod from a manifest never becomes ready",
			"test/integration/TestFields/readiness gates", "spec.readinessGates[*].conditionType").inCluster(Works, ""),

		works("test/integration/TestLife/hosts", "spec.dnsPolicy", "spec.dnsConfig.{nameservers,searches}[*]",
			"spec.dnsConfig.options[*].{name,value}"),
		works("test/integration/TestFields/host names", "spec.{hostname,subdomain,setHostnameAsFQDN,hostnameOverride}"),
		works("test/integration/TestLife/hosts", "spec.hostAliases[*].{ip,hostnames[*]}"),
		works("test/integration/TestSecurity/host namespaces", "spec.host{Network,PID,IPC}"),
		works("test/integration/TestSecurity/shared processes", "spec.shareProcessNamespace"),
		where("the runtime's handler has user namespaces (containerd 2 with runc 1.2), and volumes lie on file "+
			"systems with idmapped mounts",
			"test/integration/TestUserNamespaces", "spec.hostUsers"),

		works("test/integration/TestFields/pod resources", "spec.resources.{limits,requests}",
			"spec.resources.{limits,requests}[{cpu,memory}]"),
		works("cgroups/TestPodLimits", "spec.resources.{limits,requests}[hugepages-*]"),
		refused(Nowhere, "Kubernetes has only cpu, memory and hugepages-* for a whole pod",
			"spec.resources.{limits,requests}[{ephemeral-storage,*}]"),
		refused(Nowhere, "Kubernetes has no resource claims for a whole pod", "spec.resources.claims..."),
		works("test/integration/TestRuntimeClass", "spec.overhead", "spec.overhead[{cpu,memory}]"),
		noEffect(Node, "only cpu and memory of the overhead are limited",
			"spec.overhead[{ephemeral-storage,hugepages-*,*}]"),
		works("test/integration/TestRuntimeClass", "spec.runtimeClassName"),
		works("test/integration/TestRegistryWithLogin", "spec.imagePullSecrets[*].name"),

		refused(Cluster, "static pods may not reference serviceaccounts", "spec.{serviceAccountName,serviceAccount}"),
		noEffect(Cluster, "there are no service accounts without an API server",
			"spec.automountServiceAccountToken").unless("false"),
		where("there are Services, which an API server has", "agent/pod/generate/TestServiceEnv",
			"spec.enableServiceLinks").in(Cluster),
		refused(Cluster, "static pods may not reference resourceclaims", "spec.resourceClaims..."),
	}
}

// schedulingRules are about the choice of a pod's node, and about the order of pods.
func schedulingRules() []rule {
	const chosen = "nobody chooses among nodes here: the pod's manifest is on the node that runs it"
	return []rule{
		works("test/integration/TestFields/affinity", "spec.nodeSelector",
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution..."),
		noEffect(ControlPlane, chosen,
			"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution...",
			"spec.affinity.{podAffinity,podAntiAffinity}...",
			"spec.topologySpreadConstraints...", "spec.schedulingGroup..."),
		noEffect(ControlPlane, chosen, "spec.schedulerName").unless(v1.DefaultSchedulerName),
		refused(ControlPlane, "a pod from a manifest is on its node already, and the API forbids gates then",
			"spec.schedulingGates..."),
		// The value without a warning is the one that every pod from a manifest gets.
		noEffect(Cluster, "a node without an API server has no taints",
			"spec.tolerations...").unless("{ Exists  NoExecute <nil>}"),
		where("it is system-node-critical", "cgroups/TestOOMScoreAdj", "spec.priorityClassName").inCluster(Works, ""),
		works("test/integration/TestCriticalPodTakesARoom", "spec.priority"),
		noEffect(ControlPlane, "it is about pods that a scheduler would evict", "spec.preemptionPolicy"),
	}
}
