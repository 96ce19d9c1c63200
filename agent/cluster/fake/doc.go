// Package fake is an API server in memory, for tests: it keeps objects of the kinds that a node agent uses, serves them over HTTP as the real one does (lists,
// watches with resume and bookmarks, strategic merge patches, graceful deletion of pods), and fails when it is told to.
//
// Purpose: [New] makes a [Server]; [Server.Config] connects with it, without a network, so that tests in fake time (testing/synctest) can use it.
//
// Truth owned: the objects that were put into it. It checks preconditions (UIDs, revisions) and nothing else: what is valid, and what a node may do, only a real API
// server says.
//
// Concurrency: a Server is safe for concurrent use.
package fake
