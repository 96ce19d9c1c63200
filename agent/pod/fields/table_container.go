package fields

import "slices"

// The kinds of containers.
const (
	plainContainer = "spec.{containers,initContainers}[*]"
	ephemeral      = "spec.ephemeralContainers[*]"
	appContainer   = "spec.containers[*]"
	initContainer  = "spec.initContainers[*]"
)

// initTests are the tests of init containers.
const initTests = "test/integration/TestInitContainers/"

// containerRules are about containers, without their environment, probes and security context.
func containerRules() []rule {
	return slices.Concat(
		[]rule{
			works("test/integration/TestFields/command", plainContainer+".{name,image,command[*],args[*],workingDir}"),
			works("test/integration/TestFields/terminal", appContainer+".{stdin,stdinOnce,tty}"),
			works(initTests+"input", initContainer+".{stdin,stdinOnce,tty}"),
			works("test/integration/TestBadInput/image", appContainer+".imagePullPolicy"),
			works(initTests+"image", initContainer+".imagePullPolicy"),
			works("test/integration/TestFields/termination message", plainContainer+".terminationMessagePath"),
			works("test/integration/TestLife/messages", appContainer+".terminationMessagePolicy"),
			works(initTests+"messages", initContainer+".terminationMessagePolicy"),
			works("test/integration/TestFields/probes", appContainer+".ports[*].{name,containerPort,protocol}"),
			works("test/integration/TestFields/sidecars' probes", initContainer+".ports[*].{name,containerPort,protocol}"),
			works("test/integration/TestHostPorts", plainContainer+".ports[*].{hostPort,hostIP}"),
			works("test/integration/TestFields/sidecar", initContainer+".restartPolicy"),
			works("test/integration/TestLifecycle/rules", appContainer+".restartPolicy",
				appContainer+".restartPolicyRules[*].exitCodes.{operator,values[*]}"),
			works("test/integration/TestLifecycle/restart all", appContainer+".restartPolicyRules[*].action"),
			works("test/scenario/TestScenarios/restartall/init",
				initContainer+".restartPolicyRules[*].{action,exitCodes.{operator,values[*]}}"),
			refused(Nowhere, "the API forbids it in ephemeral containers",
				ephemeral+".{lifecycle,livenessProbe,readinessProbe,startupProbe}...",
				ephemeral+".{ports,resources,resizePolicy,restartPolicyRules}...",
				ephemeral+".restartPolicy", ephemeral+".volumeMounts[*].{subPath,subPathExpr}"),
		},
		resourceRules(), mountRules(), ephemeralRules(),
	)
}

// ephemeralRules are about what ephemeral containers have in common with other containers.
func ephemeralRules() []rule {
	const tests = "test/integration/TestEphemeral/"
	const env, context = ephemeral + ".env[*].", ephemeral + ".securityContext."
	const generated = "agent/pod/generate/TestKindsOfContainers"
	return []rule{
		works(tests+"target", ephemeral+".targetContainerName"),
		works(tests+"command", ephemeral+".{name,image,command[*],args[*],workingDir}"),
		works(tests+"input", ephemeral+".{stdin,stdinOnce,tty}"),
		works(tests+"image", ephemeral+".imagePullPolicy"),
		works(tests+"messages", ephemeral+".{terminationMessagePath,terminationMessagePolicy}"),
		works(tests+"environment",
			ephemeral+".envFrom[*].{prefix,configMapRef.{name,optional},secretRef.{name,optional}}",
			env+"{name,value}", env+"valueFrom.{configMapKeyRef,secretKeyRef}.{name,key,optional}",
			env+"valueFrom.fileKeyRef.{volumeName,path,key,optional}",
			env+"valueFrom.fieldRef.{apiVersion,fieldPath}",
			env+"valueFrom.resourceFieldRef.{containerName,resource,divisor}"),
		works(tests+"mounts", ephemeral+".volumeMounts[*].{name,readOnly,mountPath,mountPropagation}"),
		where(newRecursive, tests+"mounts", ephemeral+".volumeMounts[*].recursiveReadOnly"),
		where(blockVolume, generated, ephemeral+".volumeDevices..."),
		works(tests+"security", context+"{runAsUser,runAsGroup,runAsNonRoot}",
			context+"{privileged,allowPrivilegeEscalation,readOnlyRootFilesystem}", context+"capabilities.{add,drop}[*]",
			context+"seccompProfile.{type,localhostProfile}"),
		where(kernelAppArmor, generated, context+"appArmorProfile.{type,localhostProfile}"),
		where(kernelSELinux, generated, context+"seLinuxOptions.{user,role,type,level}"),
		where(ownUsers, generated, context+"procMount"),
	}
}

// The conditions under which fields of containers work.
const (
	newRecursive   = "the runtime can, for Enabled (containerd 2)"
	blockVolume    = "the claim's volume has volumeMode Block, and is local or of a CSI driver"
	kernelAppArmor = "the kernel enforces AppArmor"
	kernelSELinux  = "the kernel enforces SELinux"
	ownUsers       = "the pod has hostUsers: false, for Unmasked"
)

// resourceRules are about the resources of containers.
func resourceRules() []rule {
	const amounts = plainContainer + ".resources.{limits,requests}"
	const app, first = appContainer + ".resources.{limits,requests}", initContainer + ".resources.{limits,requests}"
	return []rule{
		works("test/integration/TestLife/cgroups", app, app+"[{cpu,memory}]"),
		works(initTests+"resources", first, first+"[{cpu,memory}]"),
		works("cgroups/TestContainerResources", app+"[hugepages-*]"),
		works("cgroups/TestInitContainerResources", first+"[hugepages-*]"),
		works("test/integration/TestLocalStorageLimits/container", appContainer+".resources.limits[ephemeral-storage]"),
		where("it is the largest of the pod's limits: it counts for the pod, not for the init container",
			"agent/node/eviction/TestLimitsOfInitContainers", initContainer+".resources.limits[ephemeral-storage]"),
		works("agent/node/admit/TestResources", plainContainer+".resources.requests[ephemeral-storage]"),
		where("a device plugin has the resource", "test/integration/TestDevices", amounts+"[*]"),
		refused(Cluster, "dynamic resource allocation needs an API server",
			plainContainer+".resources.claims..."),
		works("test/integration/TestResizePolicy", appContainer+".resizePolicy..."),
		works("agent/pod/resize/TestUpdates", initContainer+".resizePolicy..."),
	}
}

// mountRules are about the pod's volumes in containers.
func mountRules() []rule {
	const app, first = appContainer + ".volumeMounts[*].", initContainer + ".volumeMounts[*]."
	return []rule{
		works("test/integration/TestVolumes/read-only", app+"{name,readOnly,mountPath}"),
		works("test/integration/TestVolumes/subPath", plainContainer+".volumeMounts[*].{subPath,subPathExpr}"),
		works("test/integration/TestVolumes/propagation", app+"mountPropagation"),
		where(newRecursive, "test/integration/TestVolumes/read-only", app+"recursiveReadOnly"),
		where(blockVolume, "test/integration/TestCSI/block", appContainer+".volumeDevices..."),
		works(initTests+"mounts", first+"{name,readOnly,mountPath,mountPropagation}"),
		where(newRecursive, initTests+"mounts", first+"recursiveReadOnly"),
		where(blockVolume, "agent/pod/generate/TestKindsOfContainers", initContainer+".volumeDevices..."),
	}
}

// environmentRules are about environment variables.
func environmentRules() []rule {
	const from, value = plainContainer + ".envFrom[*].", plainContainer + ".env[*]."
	return []rule{
		works("test/integration/TestVolumes/environment",
			from+"{prefix,configMapRef.{name,optional},secretRef.{name,optional}}",
			value+"{name,value}", value+"valueFrom.configMapKeyRef.{name,key,optional}",
			value+"valueFrom.fileKeyRef.{volumeName,path,key,optional}"),
		works(initTests+"environment", value+"valueFrom.secretKeyRef.{name,key,optional}",
			value+"valueFrom.fieldRef.{apiVersion,fieldPath}"),
		works("test/integration/TestVolumes/environment",
			value+"valueFrom.resourceFieldRef.{containerName,resource,divisor}"),
	}
}
