// Package bootstrap writes what every Kubernetes API has from its first start.
//
// Purpose: [Roles] makes Kubernetes' bootstrap policy, without which no part of a cluster may do
// anything, and [PriorityClasses] the classes of the system's own pods. Upstream's servers do the
// same a second after they serve, one object after another, and are not ready before that. That
// second, and most of the time after it, is a third of a start of this server.
//
// Truth owned: none. The objects are upstream's, and how they are brought together with what
// somebody has changed is upstream's, too.
//
// Concurrency: a function writes several objects at a time, and returns after all of them.
package bootstrap
