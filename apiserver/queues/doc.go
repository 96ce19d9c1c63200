// Package queues gives client-go's work queues metrics that need no timer.
//
// Purpose: a queue that has a name wakes up twice a second to say how long its work has taken so
// far (workqueue_unfinished_work_seconds, workqueue_longest_running_processor_seconds), also when
// there is none. With all of the controllers there are 57 queues, and that is half of what an idle
// server wakes up for. A program that imports this package has the other metrics of work queues
// under the names that Kubernetes gives them, and lacks these two.
//
// Truth owned: which provider of metrics client-go has. It takes the first one that is set, and
// Kubernetes sets its own while packages are initialized: so does this one. Go initializes what
// is ready in the order of the import paths, and this one's sorts before those of Kubernetes, with
// the same requirements.
//
// Concurrency: the provider is safe for concurrent use.
package queues
