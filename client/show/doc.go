// Package show formats the agent's answers as text: tables and descriptions in the form of
// kubectl's.
//
// Purpose: everything that the command line prints about pods, events, manifests and images. All of
// it is pure: the text depends only on the arguments and on the given time.
//
// Truth owned: none. Concurrency: none.
package show
