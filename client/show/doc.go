// Package show turns the agent's answers into text: tables and descriptions that look as kubectl's do.
//
// Purpose: everything that the command line prints about pods, events, manifests and images. All of it is pure: what is shown depends on the
// arguments and on the time that is given.
//
// Truth owned: none. Concurrency: none.
package show
