// Package cluster gives a test a real Kubernetes control plane and berth as its node, in a network that no packet leaves.
//
// Purpose: [Start] runs etcd, kube-apiserver (Node and RBAC authorizers, NodeRestriction), kube-controller-manager and kube-scheduler of the release that
// test/upstream pins, beside a containerd of the test's own (test/env). "scripts/deps host containerd cluster" installs and builds them. Nothing is
// simulated: the API server is the upstream one, and so is kubectl.
//
//	c := cluster.Start(t, cluster.Options{})                 // about six seconds
//	a := c.StartNode(t, env.AgentOptions{})                  // berth, with --kubeconfig and a config as kubeadm writes it
//	c.WaitNodeReady(t)                                       // it has registered and is Ready
//	c.StartProxy(t)                                          // kube-proxy, where Services are wanted
//	c.Apply(t, manifest)                                     // kubectl apply -f -
//	out := c.Kubectl(t, "get", "pods", "-o", "wide")         // fails the test unless it ends well
//	pods, err := corev1client.NewForConfig(c.Config())       // any client of client-go
//
// All of it lives in one network namespace for each [Cluster] (see env.Options.OwnNetwork), which is why the ports are the usual ones and clusters run side
// by side, each with kube-proxy's rules to itself. A test reaches in with [Cluster.Dial], which the clients of [Cluster.Config] use, or [Cluster.In]; what
// it reads and writes on files and unix sockets is as everywhere. By hand, while a test waits: nsenter --net=/var/lib/berth-test/N/netns kubectl
// --kubeconfig /var/lib/berth-test/N/cluster/admin.conf get pods.
//
//	192.0.2.1 (env.HostIP)   the node: 6443 kube-apiserver, 10250 the agent, NodePorts
//	127.0.0.1                2379 etcd, 10256 kube-proxy's health, 10257 and 10259 controller manager and scheduler
//	10.222.N.0/24            the pods, on a bridge whose address is their default route
//	10.96.0.0/16             Services
//
// Each part is an env.Program: it can end, be killed, freeze and start again while the others go on, for instance
//
//	c.APIServer.Stop()              // nobody listens
//	c.APIServer.Freeze()            // connections hang
//	c.StartAPIServer(t)             // and again; it waits until the API is ready
//
// [Cluster.FaultProxy] stands between a node and the API server, for errors, late answers and streams that break. [Cluster.NewKubelet] is a kubelet that changes places
// with an agent. env.Env.Clock moves the node's wall clock. [Cluster.Witness] follows all pods and tells what disturbs them. $BERTH_OUTAGE is how long TestOutage has the API server away (45s).
//
// Users are made by certificates that the cluster's CA signs: [Cluster.Kubeconfig] for anyone, [Cluster.NodeKubeconfig] for a node. [Cluster.PKI] signs more.
//
// The API server calls agents as kubeadm's does: by a client certificate whose rights come from RBAC (the ClusterRole system:kubelet-api-admin).
//
// Truth owned: a cluster's files, below its environment's folder. They go with the environment, also after a test that was killed.
//
// Concurrency: a [Cluster] belongs to one test. Starting and stopping one part must not overlap; kubectl and clients may be used side by side. Different
// clusters are independent.
package cluster
