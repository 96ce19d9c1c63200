//go:build !race

package scenario

// raced says that the race detector is off.
const raced = false
