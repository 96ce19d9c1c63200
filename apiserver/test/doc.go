// Package test has the tests of the program berth-apiserver as its users meet it.
//
// Purpose: each test starts the built program on a data directory of its own and a free port of
// loopback, and uses it with kubectl or a client of client-go. $BERTH_APISERVER_BIN names the
// program; without it the tests build this checkout's. kubectl is the one that "scripts/deps
// kubectl" builds. The tests have the build tag cluster. They need no container runtime, and no
// root but for the small disk of TestFullDisk; the tests of a server with an agent are in
// test/cluster of the agent's module. $BERTH_APISERVER_KILLS is how often TestKilledUnderWrites
// kills the server (25).
//
// Truth owned: none. Concurrency: tests run one after another, because a server takes memory and a
// core.
package test
