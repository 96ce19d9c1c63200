// Package apiserver is the bundled API server: a Kubernetes API for machines without a cluster, in
// one process.
//
// Purpose: [Run] puts upstream's parts together and adds none of its own behaviour: kube-apiserver
// with its registries, admission plugins and authorizers, etcd, kube-scheduler, and the controllers
// without which an API does not do what clients expect. What is done here is what an administrator
// does otherwise: keys, certificates, kubeconfigs, settings that fit each other.
//
//	cmd/berth-apiserver     the program
//	apiserver (this)        settings and composition
//	  bootstrap             what every API has from its first start: roles, priority classes
//	  control               scheduler and controllers, as clients of the API server
//	  files                 files that are replaced as a whole
//	  pki                   keys, certificates and kubeconfigs
//	  queues                metrics of work queues
//	  services              what kube-proxy and CoreDNS need
//	  storage               the registries' storage, by calls of the store's functions
//	  store                 etcd in the process; snapshots
//
// Settings are checked before anything is written. Parts start in the order in which they need each
// other: keys, store, API server, controllers. The last two stop together, and then the store. Only
// the folder of the store comes before the keys: so it is seen when it is lost.
//
// It is a module of its own, because the agent must not depend on an API server.
//
// Truth owned: none; the store owns the content, package pki the keys. Concurrency: Run starts one
// goroutine for the controllers and one for the renewal of certificates, and joins both.
package apiserver
