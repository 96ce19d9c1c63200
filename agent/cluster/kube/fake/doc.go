// Package fake is an API server in memory, for tests. It keeps objects of the kinds that a node
// agent uses, and serves them over HTTP as the real API server does (lists, watches with resume and
// bookmarks, strategic merge patches, graceful deletion of pods). Tests can make it fail.
//
// Purpose: [New] makes a [Server]. [Server.Config] connects to it without a network, so that tests
// in fake time (testing/synctest) can use it.
//
// Truth owned: the objects that were put into it. It checks only preconditions (UIDs, revisions).
// Only a real API server knows what is valid, and what a node may do.
//
// Concurrency: a Server is safe for concurrent use.
package fake
