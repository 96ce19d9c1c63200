//go:build race

package scenario

// raced reports that the race detector is on. With it everything takes several times as long.
const raced = true
