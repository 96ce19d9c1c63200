package output

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/leaks"
)

// readerVariable has the directory and the log of an output that this program reads until it is
// killed.
const readerVariable = "BERTH_TEST_READ_OUTPUT"

func TestMain(m *testing.M) {
	if dir, path, ok := strings.Cut(os.Getenv(readerVariable), ":"); ok {
		readForever(dir, path)
	}
	os.Exit(leaks.Run(m))
}

// readForever is a process of berth that carries output. It says when it has begun.
func readForever(dir, path string) {
	o, err := Open(Config{Dir: dir, LogPath: path, Logger: slog.Default()})
	if err == nil {
		err = o.Resume()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("reading")
	select {}
}

// shim is a container and its shim: the writing ends of pipes.
type shim map[Stream]*os.File

// connect opens the pipes of an output as a shim does.
func connect(t *testing.T, o *Output) shim {
	t.Helper()
	s := shim{}
	for _, stream := range o.streams() {
		f, err := os.OpenFile(o.Pipe(stream), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		s[stream] = f
	}
	o.Made()
	return s
}

// end closes the pipes.
func (s shim) end(t *testing.T) {
	t.Helper()
	for _, f := range s {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (s *scene) output() *Output {
	s.Helper()
	o, err := Open(Config{Dir: s.dir, LogPath: s.path, Logger: slog.New(slog.NewTextHandler(s.Output(), nil))})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(o.Close)
	return o
}

func (s *scene) begin() (*Output, shim) {
	s.Helper()
	o := s.output()
	if err := o.Begin(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = o.endKeeper() })
	return o, connect(s.T, o)
}

func (s *scene) finish(o *Output) {
	s.Helper()
	if err := o.Finish(time.Minute); err != nil {
		s.Error(err)
	}
}

// texts returns the texts of a stream's lines in the log.
func (s *scene) texts(stream Stream) []string {
	s.Helper()
	data, err := os.ReadFile(s.path)
	if err != nil {
		s.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) != 4 {
			s.Fatalf("a line of the log is %q", line)
		}
		if fields[1] == stream.String() {
			out = append(out, fields[3])
		}
	}
	return out
}

// The container ends while berth is down. What is left in the pipes is in the log afterwards, and
// nothing keeps the pipes open.
func TestEndWhileDown(t *testing.T) {
	s := newScene(t)
	first, shim := s.begin()
	first.Close()
	for stream, f := range shim {
		if _, err := fmt.Fprintf(f, "last words\nof %s", stream); err != nil {
			t.Fatal(err)
		}
	}
	shim.end(t)
	o := s.output()
	if err := o.Resume(); err != nil {
		t.Fatal(err)
	}
	s.finish(o)
	for _, stream := range o.streams() {
		if got := fmt.Sprint(s.texts(stream)); got != fmt.Sprintf("[last words of %s]", stream) {
			t.Errorf("%s is %s", stream, got)
		}
	}
	if err := first.keeper.Wait(); err != nil {
		t.Errorf("the keeper ended with %v", err)
	}
}

// A container fills its pipe while berth is down. It waits, and goes on afterwards.
func TestBackPressure(t *testing.T) {
	s := newScene(t)
	first, shim := s.begin()
	first.Close()
	const lines = 20_000 // more than a pipe holds
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := range lines {
			if _, err := fmt.Fprintf(shim[Stdout], "%d\n", i); err != nil {
				t.Error(err)
				return
			}
		}
	})
	env.Eventually(t, "the pipe to be full", func() error {
		left, err := unix.IoctlGetInt(int(shim[Stdout].Fd()), unix.TIOCINQ)
		if err == nil && left < maxFill-4096 {
			err = fmt.Errorf("it has %d bytes", left)
		}
		return err
	})
	o := s.output()
	if err := o.Resume(); err != nil {
		t.Fatal(err)
	}
	writing.Wait()
	shim.end(t)
	s.finish(o)
	s.counts(Stdout, lines)
}

// stuck is a client that is attached and reads nothing until it is let go.
type stuck struct{ written, letGo chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	select {
	case s.written <- struct{}{}:
	default:
	}
	<-s.letGo
	return len(p), nil
}

// A client that is attached and reads nothing keeps a container neither from its end nor its last
// words from the log.
func TestFinishWithAStuckClient(t *testing.T) {
	s := newScene(t)
	o, shim := s.begin()
	client := stuck{make(chan struct{}, 1), make(chan struct{})}
	defer close(client.letGo)
	o.Join(&Attached{Stdout: client})
	fmt.Fprintln(shim[Stdout], "first")
	<-client.written
	fmt.Fprintln(shim[Stdout], "last")
	shim.end(t)
	finished := make(chan error, 1)
	go func() { finished <- o.Finish(6 * time.Second) }()
	select {
	case err := <-finished:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for the client")
	}
	if got := fmt.Sprint(s.texts(Stdout)); got != "[first last]" {
		t.Errorf("the log has %s", got)
	}
}

// gone is a client whose connection has ended.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A client that has gone takes the output from no other one.
func TestGiveBesideGoneClients(t *testing.T) {
	s := newScene(t)
	o, shim := s.begin()
	var got bytes.Buffer
	for range 20 {
		o.Join(&Attached{Stdout: gone{}})
	}
	o.Join(&Attached{Stdout: &got})
	fmt.Fprintln(shim[Stdout], "words")
	shim.end(t)
	s.finish(o)
	if got.String() != "words\n" {
		t.Errorf("the other client got %q", got.String())
	}
}

// A client that is attached gets every byte, also where the journal's space is given back.
func TestGiveWhatIsFreed(t *testing.T) {
	s := newScene(t)
	o, shim := s.begin()
	var got, want bytes.Buffer
	o.Join(&Attached{Stdout: &got})
	for i := 0; want.Len() < 8*freeAfter; i++ {
		fmt.Fprintf(io.MultiWriter(&want, shim[Stdout]), "%0100d\n", i)
	}
	shim.end(t)
	s.finish(o)
	if i := differAt(got.Bytes(), want.Bytes()); i >= 0 {
		t.Errorf("of %d bytes the client got %d; from byte %d on they are %q", want.Len(), got.Len(), i,
			got.Bytes()[i:min(i+20, got.Len())])
	}
	if freed := o.log.journals[Stdout].freed; freed < freeAfter {
		t.Errorf("of the journal %d bytes were freed", freed)
	}
}

// differAt returns where two texts begin to differ, -1 if they are equal.
func differAt(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) == len(b) {
		return -1
	}
	return min(len(a), len(b))
}

// counts checks that the lines of a stream are the numbers below n.
func (s *scene) counts(stream Stream, n int) {
	s.Helper()
	texts := s.texts(stream)
	for i, text := range texts {
		if text != fmt.Sprint(i) {
			s.Fatalf("line %d of %s is %q", i, stream, text)
		}
	}
	if len(texts) != n {
		s.Errorf("%s has %d lines, want %d", stream, len(texts), n)
	}
}

// Processes of berth that read the output are killed at moments that chance chooses, while a
// container writes and its log is moved away. No line is lost, and none is doubled.
func TestKilledAtRandom(t *testing.T) {
	s := newScene(t)
	first, shim := s.begin()
	first.Close()
	var writing sync.WaitGroup
	done := make(chan struct{})
	counts := map[Stream]*int{Stdout: new(int), Stderr: new(int)}
	for stream, f := range shim {
		writing.Go(func() {
			for n := counts[stream]; ; *n++ {
				select {
				case <-done:
					return
				default:
				}
				if _, err := fmt.Fprintf(f, "%d\n", *n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 30 {
		reader := s.reader()
		size := s.size()
		more := size + 1 + rand.Int64N(200_000)
		env.Eventually(t, "the log to grow", func() error {
			if s.size() < more {
				return errors.New("it has not")
			}
			return nil
		})
		if err := reader.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = reader.Wait() // it was killed
	}
	o := s.output()
	if err := o.Resume(); err != nil {
		t.Fatal(err)
	}
	close(done)
	writing.Wait()
	shim.end(t)
	s.finish(o)
	s.counts(Stdout, *counts[Stdout])
	s.counts(Stderr, *counts[Stderr])
}

// reader starts a process that reads the output.
func (s *scene) reader() *exec.Cmd {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), readerVariable+"="+s.dir+":"+s.path)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.Fatal(err)
	}
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "reading\n" {
		s.Fatalf("the reader said %q, %v", said, err)
	}
	return cmd
}

func (s *scene) size() int64 {
	info, err := os.Stat(s.path)
	if err != nil {
		s.Fatal(err)
	}
	return info.Size()
}

// statOf returns what the kernel says of a file.
func statOf(info fs.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }
