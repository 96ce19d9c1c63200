// Command build makes the sample images of the checkout in which it runs, and prints the name and
// the file of each. With -pause FILE it makes only the archive of the pause image, for the
// architecture in -arch. The packages contain this archive.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/berthd/berth/test/images"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "build the sample images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root, err := images.Root()
	if err != nil {
		return err
	}
	pause := flag.String("pause", "", "write the archive of the pause image to this file, and nothing else")
	arch := flag.String("arch", runtime.GOARCH, "the architecture of that image")
	flag.Parse()
	if *pause != "" {
		image, err := images.PauseFor(ctx, root, *arch)
		if err != nil {
			return err
		}
		return images.Write(*pause, image)
	}
	archives, err := images.Build(ctx, root)
	if err != nil {
		return err
	}
	for _, a := range archives {
		fmt.Println(a.Name, a.Path)
	}
	return nil
}
