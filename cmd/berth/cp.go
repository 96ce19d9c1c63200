package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/client/tarball"
	"github.com/berthd/berth/internal/head"
)

// cpOptions are the flags of cp.
type cpOptions struct {
	conn                 connection
	namespace, container string
	noPreserve           bool
}

func newCp() *cobra.Command {
	o := &cpOptions{}
	cmd := &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files to and from a container",
		Long: `Copy files and directories to and from a container. One of SRC and DST is POD:PATH, NAMESPACE/POD:PATH or
POD/CONTAINER:PATH. As with "kubectl cp", the image of the container must have tar. If DST is -, the content of a file
goes to standard output.

Symbolic links in a directory that you copy to a container stay links, wherever they lead. If SRC itself is a
symbolic link, its target is copied.

Symbolic links from a container are left out: through a link, later files could be written outside of DST. A line
names each link and where the link leads. Hard links between the files that are copied stay links. To copy symbolic
links, too: berth exec POD -- tar cf - DIR | tar xf -`,
		Example: `  berth cp web:/etc/hosts ./hosts
  berth cp ./web.yaml web:/tmp/          # into a directory that is there
  berth cp web:/etc/hosts -              # to standard output
  berth cp web/sidecar:/etc/passwd users`,
		Args:              exactly(2, "SRC and DST"),
		ValidArgsFunction: completePlaces(&o.conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := o.conn.client()
			defer c.Close()
			return ended(cmd.Context(),
				o.run(cmd.Context(), c, parsePlace(args[0]), parsePlace(args[1]), cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	o.conn.flag(cmd)
	namespaceFlag(cmd, &o.namespace)
	cmd.Flags().StringVarP(&o.container, "container", "c", "", "the container (default the pod's first)")
	cmd.Flags().BoolVar(&o.noPreserve, "no-preserve", false, "do not keep files' modes and owners")
	_ = cmd.RegisterFlagCompletionFunc("container", completeContainers)
	return cmd
}

// place is the source or target of a copy: a local path, or a path in a pod.
type place struct{ pod, path string }

// parsePlace parses an argument. If there is a "/" or "." before the first colon, as in ./a:b, the
// argument is a local path.
func parsePlace(arg string) place {
	pod, file, ok := strings.Cut(arg, ":")
	if !ok || pod == "" || strings.HasPrefix(pod, ".") || strings.HasPrefix(pod, "/") {
		return place{path: arg}
	}
	return place{pod: pod, path: file}
}

func (o *cpOptions) run(ctx context.Context, c *client.Client, from, to place, w, errOut io.Writer) error {
	switch {
	case from.pod != "" && to.pod != "":
		return wrongly("one of SRC and DST must be a path on this machine")
	case from.pod == "" && to.pod == "":
		return wrongly("one of SRC and DST must be POD:PATH")
	case from.path == "" || to.path == "":
		return wrongly("the path is missing: POD:PATH")
	}
	pod, container, err := findContainer(ctx, c, from.pod+to.pod, o.namespace, o.container)
	if err != nil {
		return err
	}
	container, note, err := chooseContainer(pod, container)
	if err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintln(errOut, note)
	}
	r := inside{client: c, target: client.Target{Namespace: pod.Namespace, Pod: pod.Name, Container: container}}
	skipped := func(name, what string) {
		fmt.Fprintf(errOut, "not copied: %s is %s\n", show.Clean(name), show.Clean(what))
	}
	if to.pod == "" && to.path == standardOutput {
		return o.print(ctx, r, from.path, w)
	}
	if from.pod != "" {
		return o.download(ctx, r, from.path, to.path, skipped)
	}
	return o.upload(ctx, r, from.path, to.path, skipped)
}

// download copies a container's file or directory to this machine: into an existing directory, or
// else under the given name.
func (o *cpOptions) download(ctx context.Context, r inside, from, to string, skipped tarball.Skipped) error {
	base := path.Base(path.Clean("/" + from))
	if base == "/" {
		base = "."
	}
	dir, as := filepath.Dir(to), filepath.Base(to)
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		dir, as = to, base
	} else if strings.HasSuffix(to, "/") {
		return fmt.Errorf("%s is no directory", to)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	read, write := io.Pipe()
	ran := make(chan error, 1)
	go func() {
		err := r.run(ctx, nil, write, "tar", "cf", "-", "-C", path.Dir(path.Clean(from)), "--", base)
		ran <- err // before the archive breaks off because of it
		write.CloseWithError(err)
	}()
	n, err := tarball.Unpack(read, dir, tarball.Options{Base: base, As: as, NoPreserve: o.noPreserve, Skipped: skipped})
	if err == nil {
		err = readEnd(read)
	}
	if err != nil { // the container may go on sending for ever
		select {
		case result := <-ran:
			return cmp.Or(result, err)
		default:
		}
		stop()
		read.CloseWithError(err)
		<-ran //nolint:errcheck // it was broken off
		return err
	}
	if result := <-ran; result != nil {
		return result
	}
	if n == 0 {
		err = fmt.Errorf("nothing was copied of %s", from)
	}
	return err
}

// maxPadding is how much may follow the last block of an archive, in bytes. GNU tar fills up the
// last record, which has 10 KiB unless somebody asks for more.
const maxPadding = 1 << 20

// readEnd reads what follows the last block of an archive.
func readEnd(in io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(in, maxPadding+1))
	if err == nil && n > maxPadding {
		err = errors.New("the container sends more after the end of the archive: it was broken off")
	}
	return err
}

// upload copies a local file or directory to a container: into an existing directory, or else under
// the given name.
func (o *cpOptions) upload(ctx context.Context, r inside, from, to string, skipped tarball.Skipped) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if from, err = filepath.EvalSymlinks(from); err != nil {
		return err
	}
	dir, as := path.Dir(path.Clean(to)), path.Base(path.Clean(to))
	var exit *client.ExitError
	switch err := r.run(ctx, nil, io.Discard, "test", "-d", to); {
	case err == nil:
		dir, as = to, info.Name()
		if as == "." || as == ".." {
			as = filepath.Base(from)
		}
	case !errors.As(err, &exit):
		return err
	case strings.HasSuffix(to, "/"):
		return fmt.Errorf("the container has no directory %s", to)
	}
	read, write := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := tarball.Pack(write, from, as, skipped)
		write.CloseWithError(err)
		packed <- err
	}()
	command := []string{"tar", "xmf", "-", "-C", dir}
	if o.noPreserve {
		command = []string{"tar", "--no-same-permissions", "--no-same-owner", "-xmf", "-", "-C", dir}
	}
	err = r.run(ctx, read, io.Discard, command...)
	read.CloseWithError(errors.Join(err, io.ErrClosedPipe))
	if result := <-packed; result != nil && !errors.Is(result, io.ErrClosedPipe) {
		return result
	}
	return err
}

// inside is a container in which commands run.
type inside struct {
	client *client.Client
	target client.Target
}

// maxSaid is how many bytes of a command's messages are kept for an error.
const maxSaid = 4 << 10

// run runs a command. If it fails, the error has the beginning of the text that the command
// printed.
func (r inside) run(ctx context.Context, in io.Reader, out io.Writer, command ...string) error {
	said := &head.Buffer{Most: maxSaid}
	err := r.client.Exec(ctx, r.target, command, client.Stdio{Stdin: in, Stdout: out, Stderr: said})
	if err == nil {
		return nil
	}
	if text := strings.ReplaceAll(strings.TrimSpace(string(said.Data)), "\n", "; "); text != "" {
		return fmt.Errorf("%s in container %s: %s: %w", command[0], r.target.Container, text, err)
	}
	if exit := (*client.ExitError)(nil); errors.As(err, &exit) && exit.Code != 126 && exit.Code != 127 {
		return fmt.Errorf("%s in container %s: %w", command[0], r.target.Container, err)
	}
	return fmt.Errorf("%s in container %s, whose image must have it: %w", command[0], r.target.Container, err)
}
