// Package services describes what brings packets to Services on the nodes of the bundled API
// server, and what answers for their names: upstream's kube-proxy and CoreDNS.
//
// Purpose: [Manifests] returns the objects that an administrator applies. They are as upstream
// documents both programs: kube-proxy on every node, CoreDNS behind the Service kube-dns.
//
// Truth owned: none; the settings come from the server and from the caller.
package services
