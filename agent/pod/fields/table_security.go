package fields

// securityRules are about the security contexts of pods and containers.
func securityRules() []rule {
	const app = appContainer + ".securityContext."
	const first = initContainer + ".securityContext."
	const pod = "spec.securityContext."
	const either = "{spec," + appContainer + "}.securityContext."
	const kinds = "agent/pod/generate/TestKindsOfContainers"
	return []rule{
		works("test/integration/TestSecurity/users", either+"{runAsUser,runAsGroup,runAsNonRoot}"),
		works(initTests+"security", first+"{runAsUser,runAsGroup,runAsNonRoot}",
			first+"{privileged,allowPrivilegeEscalation,readOnlyRootFilesystem}", first+"capabilities.{add,drop}[*]",
			first+"seccompProfile.{type,localhostProfile}"),
		where(kernelAppArmor, kinds, first+"appArmorProfile.{type,localhostProfile}"),
		where(kernelSELinux, kinds, first+"seLinuxOptions.{user,role,type,level}"),
		where(ownUsers, kinds, first+"procMount"),
		works("test/integration/TestSecurity/groups", pod+"{supplementalGroups[*],fsGroup}"),
		where("the runtime knows the policy (containerd 2)", "test/integration/TestSecurity/groups",
			pod+"supplementalGroupsPolicy"),
		works("test/integration/TestSecurity/privileges",
			app+"{privileged,allowPrivilegeEscalation,readOnlyRootFilesystem}",
			app+"capabilities.{add,drop}[*]"),
		works("test/integration/TestSecurity/seccomp", either+"seccompProfile.{type,localhostProfile}"),
		where(kernelAppArmor, "agent/pod/generate/TestAppArmor",
			either+"appArmorProfile.{type,localhostProfile}"),
		where(kernelSELinux, "agent/pod/generate/TestSecurityContext",
			either+"seLinuxOptions.{user,role,type,level}"),
		where(ownUsers, "test/integration/TestUserNamespaces",
			app+"procMount"),
		works("test/integration/TestSecurity/sysctls", pod+"sysctls[*].{name,value}"),
		works("test/integration/TestVolumes/fsGroup", pod+"fsGroupChangePolicy"),
		noEffect(Node, "volumes are always relabelled file by file", pod+"seLinuxChangePolicy"),
		noEffect(Windows, "this node runs Linux", either+"windowsOptions...", first+"windowsOptions...",
			ephemeral+".securityContext.windowsOptions..."),
	}
}
