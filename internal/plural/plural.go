// Package plural writes numbers of things.
//
// Purpose: messages say "1 error" and "2 errors" in one way. Truth owned: none. Concurrency: the
// functions are pure.
package plural

import "strconv"

// Of returns a number with its noun, in the plural if the number is not 1. The noun's plural ends
// in "s".
func Of(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}
