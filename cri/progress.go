package cri

// PullProgress is how far a runtime is with an image that it pulls.
type PullProgress struct {
	// Done and Total are bytes of the image as the registry has it, compressed: those that are there, and all. Total is 0 as long as the
	// runtime has not read the image's manifest.
	Done, Total int64
	// Activity is a number that changes whenever something came. It says nothing else.
	Activity uint64
	// Unpacking says that all has come, and that the runtime unpacks it.
	Unpacking bool
}
