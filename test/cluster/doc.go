// Package cluster gives a test a real Kubernetes control plane with berth as its node, in a network
// that no packet leaves.
//
// Purpose: [Start] runs etcd, kube-apiserver (Node and RBAC authorizers, NodeRestriction),
// kube-controller-manager and kube-scheduler of the release that test/upstream pins, beside a
// containerd of the test's own (test/env). "scripts/deps host containerd cluster" installs and
// builds them. Nothing is simulated: the API server and kubectl are the upstream ones.
//
//	c := cluster.Start(t, cluster.Options{})           // about six seconds
//	a := c.StartNode(t, env.AgentOptions{})            // berth as kubeadm starts it: --kubeconfig
//	c.WaitNodeReady(t)                                 // it has registered and is Ready
//	c.StartProxy(t)                                    // kube-proxy, if Services are needed
//	c.Apply(t, manifest)                               // kubectl apply -f -
//	out := c.Kubectl(t, "get", "pods", "-o", "wide")   // fails the test unless it succeeds
//	pods, err := corev1client.NewForConfig(c.Config()) // any client of client-go
//
// Each [Cluster] has a network namespace of its own (see env.Options.OwnNetwork). So the ports are
// the default ones, clusters run at the same time, and each has its own rules of kube-proxy. A test
// reaches into the namespace with [Cluster.Dial], which the clients of [Cluster.Config] use, or
// with [Cluster.In]. Files and unix sockets are the same as outside. By hand, while a test waits:
// nsenter --net=/var/lib/berth-test/N/netns kubectl --kubeconfig
// /var/lib/berth-test/N/cluster/admin.conf get pods.
//
//	192.0.2.1 (env.HostIP)   the node: 6443 kube-apiserver, 10250 the agent, NodePorts
//	127.0.0.1                2379 etcd, 10256 kube-proxy's health, 10257 controller manager,
//	                         10259 scheduler
//	10.222.N.0/24            the pods, on a bridge whose address is their default route
//	10.96.0.0/16             Services
//
// Each part is an env.Program. It can end, be killed, freeze and start again while the others go
// on, for instance
//
//	c.APIServer.Stop()              // nobody listens
//	c.APIServer.Freeze()            // connections hang
//	c.StartAPIServer(t)             // and again; it waits until the API is ready
//
// [Cluster.FaultProxy] stands between a node and the API server, for errors, late answers and
// streams that break. [Cluster.NewKubelet] is a kubelet that takes turns with an agent.
// env.Env.Clock moves the node's wall clock. [Cluster.Witness] follows all pods and reports what
// disturbs them. $BERTH_OUTAGE is how long the API server is away in TestOutage (45s).
// $BERTH_ADMISSION=all compares all admissions in TestAdmissionIsThatOfAKubelet, not a part.
// $BERTH_HOGS=all does that for the pods of TestHogsAreTreatedAsByAKubelet.
//
// The cluster's CA signs certificates for users: [Cluster.Kubeconfig] for any user,
// [Cluster.NodeKubeconfig] for a node. [Cluster.PKI] signs more.
//
// The API server calls agents as kubeadm's does: with a client certificate whose rights come from
// RBAC (the ClusterRole system:kubelet-api-admin).
//
// Truth owned: a cluster's files, below its environment's folder. They are removed with the
// environment, also after a test that was killed.
//
// Concurrency: a [Cluster] belongs to one test. Starting and stopping one part must not overlap.
// Several goroutines may use kubectl and clients at the same time. Different clusters are
// independent.
package cluster
