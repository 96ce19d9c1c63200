package source

import (
	"fmt"
	"iter"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/source/objects"
)

// These are the kinds of references that package objects cannot hold.
const (
	kindServiceAccount     = "ServiceAccount"
	kindResourceClaim      = "ResourceClaim"
	kindClusterTrustBundle = "ClusterTrustBundle"
	kindPodCertificate     = "PodCertificate"
	kindEndpoints          = "Endpoints"
	kindPriorityClass      = "PriorityClass"
)

// Reference is a reference of a pod to another API object.
type Reference struct {
	// Kind is the object's kind.
	Kind string
	// Name is the object's name. It is empty if the reference is to something made for the pod (a
	// token, a certificate), or to whatever matches.
	Name string
	// Path is the path of the field with the reference.
	Path string
	// Optional says that the pod starts also without the object.
	Optional bool
	// via is the name of the volume in upstream's message. It is empty outside of volumes.
	via string
}

// Local reports whether a static pod may have the reference. It may refer to a local object, or by
// name to a class that the node knows.
func (r Reference) Local() bool {
	switch r.Kind {
	case objects.KindConfigMap:
		return true
	case objects.KindSecret:
		// A Secret of an azureFile volume is useful only with a cloud's API.
		return r.via != viaAzureFile
	case objects.KindClaim:
		// A cluster's controllers make the claim of an ephemeral volume from its template.
		return r.via != viaEphemeral
	case objects.KindRuntimeClass, objects.KindCSIDriver, kindPriorityClass:
		return true
	default:
		return false
	}
}

// Resource names the referenced resource as upstream's messages do.
func (r Reference) Resource() string {
	plural := map[string]string{
		objects.KindConfigMap:    "configmaps",
		objects.KindSecret:       "secrets",
		kindServiceAccount:       "serviceaccounts",
		objects.KindClaim:        "persistentvolumeclaims",
		kindResourceClaim:        "resourceclaims",
		objects.KindCSIDriver:    "csidrivers",
		kindClusterTrustBundle:   "clustertrustbundles",
		kindPodCertificate:       "podcertificates",
		kindEndpoints:            "endpoints",
		objects.KindRuntimeClass: "runtimeclasses",
		kindPriorityClass:        "priorityclasses",
	}[r.Kind]
	if r.via != "" {
		return plural + " (via " + r.via + ")"
	}
	return plural
}

// These are the names of volumes in upstream's messages.
const (
	viaProjected = "projected volumes"
	viaAzureFile = "azureFile volumes"
	viaGlusterfs = "glusterFS volumes"
	viaCSI       = "CSI volumes"
	viaEphemeral = "ephemeral volumes"
	viaConfigMap = "configmap volumes"
	viaSecret    = "secret volumes"
)

// References visits every reference of a pod to another API object: those of all three kinds of
// containers, of all volumes, and of the pod itself. It is the only place that knows where
// references are. Code that resolves, refuses or watches references calls it.
func References(spec *v1.PodSpec) iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		v := &visitor{yield: yield}
		v.pod(spec)
		for i := range spec.InitContainers {
			v.container(&spec.InitContainers[i], fmt.Sprintf("spec.initContainers[%d]", i))
		}
		for i := range spec.Containers {
			v.container(&spec.Containers[i], fmt.Sprintf("spec.containers[%d]", i))
		}
		for i := range spec.EphemeralContainers {
			v.container((*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon),
				fmt.Sprintf("spec.ephemeralContainers[%d]", i))
		}
		for i := range spec.Volumes {
			v.volume(&spec.Volumes[i].VolumeSource, fmt.Sprintf("spec.volumes[%d]", i))
		}
	}
}

// visitor yields references until its consumer stops.
type visitor struct {
	yield   func(Reference) bool
	stopped bool
}

func (v *visitor) visit(kind, name, path, via string) {
	v.visitUnless(nil, kind, name, path, via)
}

// visitUnless visits a reference that may be optional.
func (v *visitor) visitUnless(optional *bool, kind, name, path, via string) {
	if !v.stopped {
		v.stopped = !v.yield(Reference{
			Kind: kind, Name: name, Path: path, Optional: optional != nil && *optional, via: via,
		})
	}
}

// secretRef visits a volume's reference to a Secret.
func (v *visitor) secretRef(ref *v1.LocalObjectReference, path string) {
	if ref != nil && ref.Name != "" {
		v.visit(objects.KindSecret, ref.Name, path+".name", "")
	}
}

func (v *visitor) pod(spec *v1.PodSpec) {
	if spec.ServiceAccountName != "" {
		v.visit(kindServiceAccount, spec.ServiceAccountName, "spec.serviceAccountName", "")
	} else if spec.DeprecatedServiceAccount != "" {
		v.visit(kindServiceAccount, spec.DeprecatedServiceAccount, "spec.serviceAccount", "")
	}
	if spec.PriorityClassName != "" {
		v.visit(kindPriorityClass, spec.PriorityClassName, "spec.priorityClassName", "")
	}
	if spec.RuntimeClassName != nil {
		v.visit(objects.KindRuntimeClass, *spec.RuntimeClassName, "spec.runtimeClassName", "")
	}
	for i, ref := range spec.ImagePullSecrets {
		if ref.Name != "" {
			v.visit(objects.KindSecret, ref.Name, fmt.Sprintf("spec.imagePullSecrets[%d].name", i), "")
		}
	}
	for i, claim := range spec.ResourceClaims {
		path := fmt.Sprintf("spec.resourceClaims[%d]", i)
		switch {
		case claim.ResourceClaimName != nil:
			v.visit(kindResourceClaim, *claim.ResourceClaimName, path+".resourceClaimName", "")
		case claim.ResourceClaimTemplateName != nil:
			v.visit(kindResourceClaim, *claim.ResourceClaimTemplateName, path+".resourceClaimTemplateName", "")
		default:
			v.visit(kindResourceClaim, "", path, "")
		}
	}
}

func (v *visitor) container(c *v1.Container, path string) {
	for i, from := range c.EnvFrom {
		at := fmt.Sprintf("%s.envFrom[%d]", path, i)
		if from.ConfigMapRef != nil {
			v.visitUnless(from.ConfigMapRef.Optional, objects.KindConfigMap, from.ConfigMapRef.Name, at+".configMapRef.name", "")
		}
		if from.SecretRef != nil {
			v.visitUnless(from.SecretRef.Optional, objects.KindSecret, from.SecretRef.Name, at+".secretRef.name", "")
		}
	}
	for i, env := range c.Env {
		if env.ValueFrom == nil {
			continue
		}
		at := fmt.Sprintf("%s.env[%d].valueFrom", path, i)
		if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
			v.visitUnless(ref.Optional, objects.KindConfigMap, ref.Name, at+".configMapKeyRef.name", "")
		}
		if ref := env.ValueFrom.SecretKeyRef; ref != nil {
			v.visitUnless(ref.Optional, objects.KindSecret, ref.Name, at+".secretKeyRef.name", "")
		}
	}
}

func (v *visitor) volume(s *v1.VolumeSource, path string) {
	if s.ConfigMap != nil {
		v.visitUnless(s.ConfigMap.Optional, objects.KindConfigMap, s.ConfigMap.Name, path+".configMap.name", viaConfigMap)
	}
	if s.Secret != nil {
		v.visitUnless(s.Secret.Optional, objects.KindSecret, s.Secret.SecretName, path+".secret.secretName", viaSecret)
	}
	if s.Projected != nil {
		for i := range s.Projected.Sources {
			v.projection(&s.Projected.Sources[i], fmt.Sprintf("%s.projected.sources[%d]", path, i))
		}
	}
	if s.PersistentVolumeClaim != nil {
		v.visit(objects.KindClaim, s.PersistentVolumeClaim.ClaimName, path+".persistentVolumeClaim.claimName", "")
	}
	if s.Ephemeral != nil {
		v.visit(objects.KindClaim, "", path+".ephemeral", viaEphemeral)
	}
	if s.CSI != nil {
		v.visit(objects.KindCSIDriver, s.CSI.Driver, path+".csi.driver", viaCSI)
		v.secretRef(s.CSI.NodePublishSecretRef, path+".csi.nodePublishSecretRef")
	}
	if s.Glusterfs != nil {
		v.visit(kindEndpoints, s.Glusterfs.EndpointsName, path+".glusterfs.endpoints", viaGlusterfs)
	}
	if s.AzureFile != nil {
		v.visit(objects.KindSecret, s.AzureFile.SecretName, path+".azureFile.secretName", viaAzureFile)
	}
	v.driverSecrets(s, path)
}

// driverSecrets visits the Secrets that volume drivers use to log in.
func (v *visitor) driverSecrets(s *v1.VolumeSource, path string) {
	if s.CephFS != nil {
		v.secretRef(s.CephFS.SecretRef, path+".cephfs.secretRef")
	}
	if s.Cinder != nil {
		v.secretRef(s.Cinder.SecretRef, path+".cinder.secretRef")
	}
	if s.FlexVolume != nil {
		v.secretRef(s.FlexVolume.SecretRef, path+".flexVolume.secretRef")
	}
	if s.ISCSI != nil {
		v.secretRef(s.ISCSI.SecretRef, path+".iscsi.secretRef")
	}
	if s.RBD != nil {
		v.secretRef(s.RBD.SecretRef, path+".rbd.secretRef")
	}
	if s.ScaleIO != nil {
		v.secretRef(s.ScaleIO.SecretRef, path+".scaleIO.secretRef")
	}
	if s.StorageOS != nil {
		v.secretRef(s.StorageOS.SecretRef, path+".storageos.secretRef")
	}
}

func (v *visitor) projection(s *v1.VolumeProjection, path string) {
	if s.ConfigMap != nil {
		v.visitUnless(s.ConfigMap.Optional, objects.KindConfigMap, s.ConfigMap.Name, path+".configMap.name", viaProjected)
	}
	if s.Secret != nil {
		v.visitUnless(s.Secret.Optional, objects.KindSecret, s.Secret.Name, path+".secret.name", viaProjected)
	}
	if s.ServiceAccountToken != nil {
		v.visit(kindServiceAccount, "", path+".serviceAccountToken", viaProjected)
	}
	if s.ClusterTrustBundle != nil {
		name := ""
		if s.ClusterTrustBundle.Name != nil {
			name = *s.ClusterTrustBundle.Name
		}
		v.visit(kindClusterTrustBundle, name, path+".clusterTrustBundle", "")
	}
	if s.PodCertificate != nil {
		v.visit(kindPodCertificate, s.PodCertificate.SignerName, path+".podCertificate", "")
	}
}
