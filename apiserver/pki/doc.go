// Package pki makes and renews the keys and certificates of the bundled API server, and the
// kubeconfigs that use them.
//
// Purpose: [Ensure] makes what is missing in a folder, issues again what ends soon or does not fit
// any more, and leaves the rest as it is. [Keys.Maintain] repeats that while the server runs.
//
//	ca.crt, ca.key             the authority of servers, users and nodes
//	front-proxy-ca.crt, .key   the authority of the API server as a proxy of extension servers
//	service-accounts.key       signs the tokens of ServiceAccounts
//	server.pem                 the API server's serving certificate
//	kubelet-client.pem         the API server as a client of agents
//	front-proxy-client.pem     the API server as a client of extension servers
//	node-serving.pem           the serving certificate of the agent on this machine
//	admin.pem, node.pem        the users of the two kubeconfigs
//
// A .pem file has a certificate and its key, so that both are replaced by one rename: a reader
// never finds a certificate without its key.
//
// Truth owned: the files of this folder and the two kubeconfigs. An authority and the key of
// ServiceAccounts are never made again while one of their files exists, because everything that
// they signed would become worthless.
//
// Concurrency: one process at a time calls Ensure for a folder.
package pki
