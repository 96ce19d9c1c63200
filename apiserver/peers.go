package apiserver

import (
	"sync"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
)

// withoutPeers switches a feature gate off, unless a flag switches it on: servers of several
// versions that pass requests on to each other. Each writes every ten seconds where the others reach
// it, to a full disk, too. They find it by the Lease that this server has not (see identity). The
// gate is the process's: it can be changed once, before it has flags.
var withoutPeers = sync.OnceFunc(func() {
	err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.UnknownVersionInteroperabilityProxy, false)
	if err != nil {
		klog.ErrorS(err, "The server will write every ten seconds where other API servers reach it")
	}
})
