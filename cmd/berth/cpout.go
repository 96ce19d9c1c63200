package main

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
)

// standardOutput is the DST of cp that stands for standard output.
const standardOutput = "-"

// errNoFile is the error of something that has no content, and errNothing that of an empty archive.
var (
	errNoFile  = errors.New("it is no file: to get a directory, use berth exec POD -- tar cf - DIR")
	errNothing = errors.New("nothing was copied")
)

// print writes the content of one file of a container. It follows a symbolic link.
func (o *cpOptions) print(ctx context.Context, r inside, from string, w io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	read, write := io.Pipe()
	ran := make(chan error, 1)
	go func() {
		err := r.run(ctx, nil, write, "tar", "chf", "-", "-C", path.Dir(path.Clean(from)), "--",
			path.Base(path.Clean("/"+from)))
		ran <- err // before the archive breaks off because of it
		write.CloseWithError(err)
	}()
	err := firstFile(read, w)
	if err == nil || errors.Is(err, errNothing) { // the archive has ended
		broken := readEnd(read)
		if broken == nil {
			return cmp.Or(<-ran, err)
		}
		err = broken
	}
	select {
	case result := <-ran:
		return cmp.Or(result, err)
	default: // the container may go on sending for ever
	}
	stop()
	read.CloseWithError(err)
	<-ran //nolint:errcheck // it was broken off
	return fmt.Errorf("%s: %w", from, err)
}

// firstFile writes the content of the first entry of an archive, which must be a file.
func firstFile(in io.Reader, w io.Writer) error {
	archive := tar.NewReader(in)
	header, err := archive.Next()
	if errors.Is(err, io.EOF) {
		return errNothing
	}
	if err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return errNoFile
	}
	if _, err := io.Copy(w, archive); err != nil {
		return err
	}
	_, err = archive.Next()
	if err == nil {
		return errNoFile
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
