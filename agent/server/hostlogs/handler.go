package hostlogs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/pieces"
)

// Dir is the directory of a host's logs.
const Dir = "/var/log"

// queryTimeout bounds a query, as kubelet 1.36 does. pieceTimeout bounds the sending of each piece
// of an answer: a file may be large, and its reader slow.
const (
	queryTimeout = 30 * time.Second
	pieceTimeout = 30 * time.Second
)

// Config says what is served.
type Config struct {
	// Dir is the directory of the files; empty means [Dir].
	Dir string
	// Query enables queries (enableSystemLogQuery). Without it, the parameters of queries are
	// ignored.
	Query bool
	// Journal runs journalctl with these arguments and writes its output to out; nil runs the
	// host's journalctl.
	Journal func(ctx context.Context, out io.Writer, args ...string) error
}

// Handler serves the node's logs. Make it with [New].
type Handler struct {
	cfg   Config
	files http.Handler
	// queryTimeout and pieceTimeout are the constants of their names except in tests.
	queryTimeout, pieceTimeout time.Duration
}

// New returns a handler of the paths below /logs/.
func New(cfg Config) *Handler {
	if cfg.Dir == "" {
		cfg.Dir = Dir
	}
	if cfg.Journal == nil {
		cfg.Journal = journalctl
	}
	return &Handler{
		cfg: cfg, files: http.FileServer(http.FS(beneath(cfg.Dir))), queryTimeout: queryTimeout, pieceTimeout: pieceTimeout,
	}
}

// ServeHTTP answers with a file, a directory's list, or the entries that a query asks for.
func (h *Handler) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	w := pieces.New(to, h.pieceTimeout)
	defer w.End()
	if !h.cfg.Query {
		http.StripPrefix("/logs/", h.files).ServeHTTP(w, r)
		return
	}
	q, errs := Parse(r.URL.Query())
	switch {
	case len(errs) > 0:
		http.Error(w, errs.ToAggregate().Error(), http.StatusBadRequest)
	case q == nil:
		http.StripPrefix("/logs/", h.files).ServeHTTP(w, r)
	case q.File != "":
		h.file(w, r, q.File)
	default:
		end := time.Now().Add(h.queryTimeout)
		ctx, cancel := context.WithDeadline(r.Context(), end)
		defer cancel()
		w.Until(end) // the journal's reader may read nothing
		w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
		h.services(ctx, w, q)
	}
}

// file answers with one file. If the file cannot be read, the error is the caller's.
func (h *Handler) file(w http.ResponseWriter, r *http.Request, name string) {
	f, err := beneath(h.cfg.Dir).Open(strings.TrimPrefix(path.Clean("/"+strings.ReplaceAll(name, `\`, "/")), "/"))
	if err != nil {
		http.Error(w, fmt.Sprintf("query: Invalid value: %q: %v", name, err), http.StatusBadRequest)
		return
	}
	defer func() { _ = f.Close() }() // the file was only read
	info, err := f.Stat()
	content, seeks := f.(io.ReadSeeker)
	if err != nil || info.IsDir() || !seeks {
		http.Error(w, fmt.Sprintf("query: Invalid value: %q: it is no file", name), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	http.ServeContent(w, r, "", info.ModTime(), content)
}

// services writes the entries of services from the journal, and the files of services that the
// journal does not know. Errors are lines of the response, because the response has begun.
func (h *Handler) services(ctx context.Context, w io.Writer, q *Query) {
	var units bytes.Buffer
	if err := h.cfg.Journal(ctx, &units, "--field=_SYSTEMD_UNIT"); err != nil {
		units.Reset() // a host without a journal has files
	}
	known := map[string]bool{}
	for unit := range strings.FieldsSeq(units.String()) {
		known[unit] = true
	}
	var native, files []string
	for _, service := range q.Services {
		if known[service+".service"] {
			native = append(native, service)
		} else {
			files = append(files, service)
		}
	}
	if len(native) > 0 {
		if err := h.cfg.Journal(ctx, w, q.journalArgs(native)...); err != nil {
			fmt.Fprintf(w, "\nreading the journal of %s: %v\n", strings.Join(native, ", "), err)
		}
	}
	if len(files) > 0 && !q.plain() {
		fmt.Fprintf(w, "\nthe journal does not know %s: files are served whole, without other parameters than query\n",
			strings.Join(files, ", "))
		return
	}
	for _, service := range files {
		if err := h.copyFile(ctx, w, service); err != nil {
			fmt.Fprintf(w, "\nno log of %s: %v\n", service, err)
		}
	}
}

// copyFile writes the first existing log file of a service: NAME, NAME.log or NAME/NAME.log.
func (h *Handler) copyFile(ctx context.Context, w io.Writer, service string) error {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		f, err := beneath(h.cfg.Dir).Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // the file was only read
		if info, err := f.Stat(); err == nil && info.IsDir() {
			continue
		}
		_, err = io.Copy(w, whileOpen{ctx, f})
		return err
	}
	return fmt.Errorf("neither the journal nor a file in %s has it", h.cfg.Dir)
}

// whileOpen reads until ctx ends.
type whileOpen struct {
	ctx context.Context //nolint:containedctx // of one copy
	io.Reader
}

// Read reads, unless ctx has ended.
func (r whileOpen) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// journalctl runs the host's journalctl.
func journalctl(ctx context.Context, out io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd.Run()
}

// beneath is a directory as a file system. It opens only regular files and directories, and nothing
// outside of the directory, even through symbolic links.
type beneath string

// Open opens a file or a directory.
func (b beneath) Open(name string) (fs.File, error) {
	root, err := os.OpenRoot(string(b))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	if name == "" {
		name = "."
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", fs.ErrPermission, err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		_ = f.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f, nil
}
