package fields

import "slices"

// The kinds of containers.
const (
	plainContainer = "spec.{containers,initContainers}[*]"
	everyContainer = "spec.{containers,initContainers,ephemeralContainers}[*]"
	ephemeral      = "spec.ephemeralContainers[*]"
	appContainer   = "spec.containers[*]"
	initContainer  = "spec.initContainers[*]"
)

// containerRules are about containers, without their environment, probes and security context.
func containerRules() []rule {
	return slices.Concat(
		[]rule{
			works("test/integration/TestFields/command", everyContainer+".{name,image,command[*],args[*],workingDir}"),
			works("test/integration/TestFields/terminal", everyContainer+".{stdin,stdinOnce,tty}"),
			works("test/integration/TestBadInput/image", everyContainer+".imagePullPolicy"),
			works("test/integration/TestFields/termination message", everyContainer+".terminationMessagePath"),
			works("test/integration/TestLife/messages", everyContainer+".terminationMessagePolicy"),
			works("test/integration/TestFields/probes", plainContainer+".ports[*].{name,containerPort,protocol}"),
			works("test/integration/TestHostPorts", plainContainer+".ports[*].{hostPort,hostIP}"),
			works("test/integration/TestFields/sidecar", initContainer+".restartPolicy"),
			works("test/integration/TestLifecycle/rules", appContainer+".restartPolicy",
				plainContainer+".restartPolicyRules[*].exitCodes.{operator,values[*]}"),
			works("test/integration/TestLifecycle/restart all", plainContainer+".restartPolicyRules[*].action"),
			works("test/integration/TestLifecycle/debug", ephemeral+".targetContainerName"),
			refused(Nowhere, "the API forbids it in ephemeral containers",
				ephemeral+".{lifecycle,livenessProbe,readinessProbe,startupProbe}...",
				ephemeral+".{ports,resources,resizePolicy,restartPolicyRules}...",
				ephemeral+".restartPolicy", ephemeral+".volumeMounts[*].{subPath,subPathExpr}"),
		},
		resourceRules(), mountRules(),
	)
}

// resourceRules are about the resources of containers.
func resourceRules() []rule {
	const amounts = plainContainer + ".resources.{limits,requests}"
	return []rule{
		works("test/integration/TestLife/cgroups", plainContainer+".resources.{limits,requests}",
			amounts+"[{cpu,memory}]"),
		works("cgroups/TestContainerResources", amounts+"[hugepages-*]"),
		noEffect(Node, "local storage is not limited", plainContainer+".resources.limits[ephemeral-storage]"),
		where("a pod is admitted: it is refused where it does not fit beside the others, and nothing evicts it later",
			"agent/node/admit/TestResources", plainContainer+".resources.requests[ephemeral-storage]"),
		noEffect(Node, "there are no device plugins", amounts+"[*]"),
		refused(Cluster, "dynamic resource allocation needs an API server",
			plainContainer+".resources.claims...").always(noDRA),
		works("test/integration/TestResizePolicy", plainContainer+".resizePolicy..."),
	}
}

// mountRules are about the pod's volumes in containers.
func mountRules() []rule {
	const mount = everyContainer + ".volumeMounts[*]."
	return []rule{
		works("test/integration/TestVolumes/read-only", mount+"{name,readOnly,mountPath}"),
		works("test/integration/TestVolumes/subPath", plainContainer+".volumeMounts[*].{subPath,subPathExpr}"),
		works("test/integration/TestVolumes/propagation", mount+"mountPropagation"),
		where("the runtime can, for Enabled (containerd 2)", "test/integration/TestVolumes/read-only",
			mount+"recursiveReadOnly"),
		where("the claim's volume has volumeMode Block, and is local or of a CSI driver",
			"test/integration/TestCSI/block", everyContainer+".volumeDevices..."),
	}
}

// environmentRules are about environment variables.
func environmentRules() []rule {
	const from, value = everyContainer + ".envFrom[*].", everyContainer + ".env[*]."
	return []rule{
		works("test/integration/TestVolumes/environment",
			from+"{prefix,configMapRef.{name,optional},secretRef.{name,optional}}",
			value+"{name,value}", value+"valueFrom.{configMapKeyRef,secretKeyRef}.{name,key,optional}",
			value+"valueFrom.fileKeyRef.{volumeName,path,key,optional}"),
		works("test/integration/TestFields/metadata", value+"valueFrom.fieldRef.{apiVersion,fieldPath}"),
		works("test/integration/TestVolumes/environment",
			value+"valueFrom.resourceFieldRef.{containerName,resource,divisor}"),
	}
}
