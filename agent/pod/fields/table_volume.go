package fields

// volumeRules are about volumes. The reasons for kinds that are refused are those of package
// volumes.
func volumeRules() []rule {
	const v = "spec.volumes[*]."
	const file = "{defaultMode,optional,items[*].{key,path,mode}}"
	const downward = v + "{downwardAPI,projected.sources[*].downwardAPI}.items[*]."
	const (
		mounted = "the API server's claim is bound to a volume of a kind that this node mounts"
		cloud   = "Kubernetes moved this kind to a CSI driver: use a volume of that driver"
		removed = "Kubernetes removed this kind"
		san     = "this node does not attach block storage over the network"
		made    = "a volume made from a claim template needs a cluster's provisioner, which this node does without"
		flex    = "FlexVolume drivers are programs that run as root on the node; they are deprecated, and not supported"
		git     = "git-repo volume plugin has been disabled: it lets a pod run commands as root on the node; " +
			"clone in an init container instead"
	)
	return []rule{
		works("test/integration/TestVolumes/emptyDir", v+"name", v+"emptyDir"),
		works("test/integration/TestLocalStorageLimits/emptyDir", v+"emptyDir.sizeLimit"),
		works("agent/volumes/TestHugePages", v+"emptyDir.medium"),
		works("test/integration/TestVolumes/hostPath", v+"hostPath", v+"hostPath.{path,type}"),
		works("test/integration/TestVolumes/files", v+"{configMap,secret,downwardAPI,projected}",
			v+"configMap.{name,"+file+"}", v+"secret.{secretName,"+file+"}", v+"downwardAPI.defaultMode",
			downward+"{path,mode,fieldRef.{apiVersion,fieldPath}}",
			v+"projected.{defaultMode,sources[*].{configMap,secret}.{name,optional,items[*].{key,path,mode}}}",
			downward+"resourceFieldRef.{containerName,resource,divisor}"),
		where("a PersistentVolume among the manifests (hostPath, local, nfs, csi) matches the claim",
			"test/integration/TestVolumes/claims", v+"persistentVolumeClaim",
			v+"persistentVolumeClaim.{claimName,readOnly}").
			inCluster(WorksWhere, mounted),
		where("the node has mount.nfs", "test/integration/TestVolumes/nfs", v+"nfs", v+"nfs.{server,path,readOnly}"),
		where("the driver is registered on this node", "test/integration/TestCSI/inline", v+"csi",
			v+"csi.{driver,fsType,volumeAttributes,nodePublishSecretRef,nodePublishSecretRef.name}"),
		where("the driver is registered on this node", "agent/volumes/TestCSIInline", v+"csi.readOnly"),
		where("the runtime mounts images (containerd 2.1)", "test/integration/TestVolumes/images", v+"image",
			v+"image.{reference,pullPolicy}"),

		refused(Cluster, "static pods may not reference serviceaccounts (via projected volumes)",
			v+"projected.sources[*].serviceAccountToken..."),
		refused(Cluster, "static pods may not reference clustertrustbundles",
			v+"projected.sources[*].clusterTrustBundle...").inCluster(WorksWhere,
			"the feature gate ClusterTrustBundleProjection is on"),
		refused(Cluster, "static pods may not reference podcertificates",
			v+"projected.sources[*].podCertificate...").inCluster(WorksWhere,
			"the feature gate PodCertificateRequest is on and a signer of the cluster answers"),
		refused(Cluster, made, v+"ephemeral...").inCluster(WorksWhere, mounted),
		refused(Node, san, v+"{iscsi,fc}..."),
		refused(Node, flex, v+"flexVolume..."),
		refused(Nowhere, git, v+"gitRepo..."),
		refused(Nowhere, cloud,
			v+"{gcePersistentDisk,awsElasticBlockStore,azureDisk,azureFile,cinder,vsphereVolume,portworxVolume}..."),
		refused(Nowhere, removed, v+"{cephfs,rbd,glusterfs,quobyte,flocker,scaleIO,storageos,photonPersistentDisk}..."),
	}
}
