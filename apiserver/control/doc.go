// Package control has what makes an API a cluster: the scheduler and the controllers of Kubernetes,
// in the process of the API server.
//
// Purpose: [Run] starts them when the API server serves. They are upstream's, with upstream's
// defaults, and use the API as clients through the server's own loopback connection. There they act
// as the users that Kubernetes' bootstrap policy has for them: each controller as its own
// ServiceAccount in kube-system, what controllers share as system:kube-controller-manager, the
// scheduler as system:kube-scheduler. There is one process, so nothing elects a leader.
//
//	--controllers  namespaces, ServiceAccounts, the ConfigMap with the root CA, aggregated
//	               ClusterRoles, owners and their dependents, pods that ended, nodes, taints,
//	               endpoints, ranges of Services, quota, volumes, certificates,
//	               ReplicationControllers, PodDisruptionBudgets
//	--workloads    Deployments, ReplicaSets, DaemonSets, StatefulSets, Jobs, CronJobs,
//	               HorizontalPodAutoscalers
//	--scheduler    which pod runs on which node
//
// Truth owned: the lists of controllers. What they decide is in the API.
//
// Concurrency: Run joins every goroutine of the controllers that upstream lets it join.
package control
