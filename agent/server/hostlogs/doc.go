// Package hostlogs serves the node's own logs: the files below /var/log, and with a query those of
// services, from systemd's journal or from files.
//
// Purpose: the kubelet's /logs/ ("kubectl get --raw
// /api/v1/nodes/NODE/proxy/logs/?query=containerd"). What a request asks for is parsed and checked
// first ([Parse], pure); journalctl gets a fixed list of arguments, never a shell.
//
// Defence: a file is opened beneath the directory, whatever its symbolic links say, and only
// regular files and directories are. Names of services are held to systemd's characters.
//
// Truth owned: none. Concurrency: a [Handler] answers many requests at once and holds no state.
package hostlogs
