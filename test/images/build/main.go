// Command build makes the sample images of the checkout it runs in and prints the name and the file of each.
package main

import (
	"context"
	"fmt"
	"os"

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
	archives, err := images.Build(ctx, root)
	if err != nil {
		return err
	}
	for _, a := range archives {
		fmt.Println(a.Name, a.Path)
	}
	return nil
}
