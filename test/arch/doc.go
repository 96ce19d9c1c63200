// Package arch proves by tests that the code keeps the architecture's rules: which way imports go,
// what the agent may link, and what every package and every exported name must have.
//
// Truth owned: the rules themselves, in rules.go and floors.go. Concurrency: none.
package arch
