// Package configs reads the agent's configuration: the config file, its drop-ins and the command
// line.
//
// Purpose: one call, [Load], returns a complete and valid [Config] with the warnings for the user,
// or an error that names every wrong field. The file has a stock KubeletConfiguration
// (kubelet.config.k8s.io/v1beta1) and a BerthConfiguration (berth.dev/v1alpha1) as two documents;
// either may be missing. Later sources override earlier ones, field by field:
//
//	defaults  <  config file  <  drop-ins *.conf in name order  <  command line
//
// Objects are merged key by key (RFC 7386: null unsets). Lists are replaced. A map in a flag
// replaces the file's map, except --feature-gates, which is merged into it.
//
// Truth owned: which settings exist, their defaults, which values are valid, and which accepted
// settings have no effect. No other package parses a config file or has a default.
//
// Concurrency: everything is a plain function; [Load] and [NodeName] read files and the host name.
// A Config does not change after Load, and any number of goroutines may read it.
package configs
