// Package configs reads the agent's configuration: the config file, its drop-ins and the command line.
//
// Purpose: one call, [Load], gives a complete and valid [Config], the warnings a user has to see, or an error that names
// every wrong field. The file is a stock KubeletConfiguration (kubelet.config.k8s.io/v1beta1) and, as a second document,
// a BerthConfiguration (berth.dev/v1alpha1); either may be missing. Later sources win, field by field:
//
//	defaults  <  config file  <  drop-ins *.conf in name order  <  command line
//
// Objects are merged key by key (RFC 7386: null unsets), lists are replaced, and a map given by a flag replaces the
// file's map, except --feature-gates, which is merged into it.
//
// Truth owned: which settings exist, their defaults, which values are valid, and which accepted settings have no effect.
// Nobody else parses a config file or knows a default.
//
// Concurrency: everything is a plain function; [Load] and [NodeName] read files and the host name. A Config is not
// changed after Load and may be read by any number of goroutines.
package configs
