//go:build !race

package scenario

// raced reports that the race detector is off.
const raced = false
