package native

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/flock"
)

// store has every sandbox and container, and which names they have.
type store struct {
	sandboxRecords   records[*sandboxRecord]
	containerRecords records[*containerRecord]

	// lock is held on the directory of the records: two runtimes would lead each other's processes.
	lock *os.File

	mu         sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*container
	names      map[string]bool
}

// sandboxesDir has the records of sandboxes.
const sandboxesDir = "sandboxes"

func newStore(dir string) (*store, error) {
	sandboxes, err := openRecords[*sandboxRecord](filepath.Join(dir, sandboxesDir))
	if err != nil {
		return nil, err
	}
	containers, err := openRecords[*containerRecord](filepath.Join(dir, "containers"))
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return &store{
		lock: lock, sandboxRecords: sandboxes, containerRecords: containers, sandboxes: map[string]*sandbox{},
		containers: map[string]*container{}, names: map[string]bool{},
	}, nil
}

// lockDir takes the lock of a directory, which ends with the process.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock the directory of records: %w", err)
	}
	if err := flock.Take(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock the directory of records %s: another process of berth uses it: %w", dir, err)
	}
	return f, nil
}

// newID returns the ID of a sandbox or a container: 64 hexadecimal digits, as tools expect.
func newID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// sandboxName is what only one sandbox may have.
func sandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("pod %s_%s_%s_%d", m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt())
}

// containerName is what only one container may have.
func containerName(m *runtimeapi.ContainerMetadata, sandboxID string) string {
	return fmt.Sprintf("container %s_%s_%d", m.GetName(), sandboxID, m.GetAttempt())
}

// addSandbox returns errdefs.ErrAlreadyExists if there is one of the same name.
func (s *store) addSandbox(sb *sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := sandboxName(sb.config.GetMetadata())
	if s.names[name] {
		return fmt.Errorf("there is a sandbox of the same name: %s: %w", name, errdefs.ErrAlreadyExists)
	}
	s.names[name], s.sandboxes[sb.id] = true, sb
	return nil
}

// addContainer returns errdefs.ErrAlreadyExists if there is one of the same name, and
// errdefs.ErrNotFound if the sandbox is gone.
func (s *store) addContainer(c *container) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandboxes[c.sandboxID] == nil {
		return notFound("sandbox", c.sandboxID)
	}
	name := containerName(c.config.GetMetadata(), c.sandboxID)
	if s.names[name] {
		return fmt.Errorf("there is a container of the same name: %s: %w", name, errdefs.ErrAlreadyExists)
	}
	s.names[name], s.containers[c.id] = true, c
	return nil
}

func (s *store) removeSandbox(sb *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandboxes[sb.id] == sb {
		delete(s.sandboxes, sb.id)
		delete(s.names, sandboxName(sb.config.GetMetadata()))
	}
}

func (s *store) removeContainer(c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.containers[c.id] == c {
		delete(s.containers, c.id)
		delete(s.names, containerName(c.config.GetMetadata(), c.sandboxID))
	}
}

// sandbox returns errdefs.ErrNotFound if there is none.
func (s *store) sandbox(id string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sb := s.sandboxes[id]; sb != nil {
		return sb, nil
	}
	return nil, notFound("sandbox", id)
}

// container returns errdefs.ErrNotFound if there is none.
func (s *store) container(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[id]; c != nil {
		return c, nil
	}
	return nil, notFound("container", id)
}

// takeSandbox waits for a sandbox's turn. It returns errdefs.ErrNotFound if the sandbox was removed
// meanwhile.
func (s *store) takeSandbox(ctx context.Context, sb *sandbox) error {
	return sb.turn.takeIf(ctx, func() error {
		_, err := s.sandbox(sb.id)
		return err
	})
}

// takeContainer waits for a container's turn. It returns errdefs.ErrNotFound if the container was
// removed meanwhile.
func (s *store) takeContainer(ctx context.Context, c *container) error {
	return c.turn.takeIf(ctx, func() error {
		_, err := s.container(c.id)
		return err
	})
}

// ids returns the IDs of all sandboxes and containers.
func (s *store) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Keys(s.sandboxes)), slices.Collect(maps.Keys(s.containers)))
}

func (s *store) allSandboxes() []*sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*sandbox, 0, len(s.sandboxes))
	for _, sb := range s.sandboxes {
		out = append(out, sb)
	}
	return out
}

// containersOf returns the containers of a sandbox, or all if it is "".
func (s *store) containersOf(sandboxID string) []*container {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*container
	for _, c := range s.containers {
		if sandboxID == "" || c.sandboxID == sandboxID {
			out = append(out, c)
		}
	}
	return out
}

// closeInputs ends the input of every container, for berth alone: the shims keep theirs.
func (s *store) closeInputs() {
	for _, c := range s.containersOf("") {
		c.mu.Lock()
		if c.io != nil && c.io.stdin != nil {
			c.io.stdin.end()
		}
		c.mu.Unlock()
	}
}

// closeIO ends the copying of every container's output. The containers may write on, and a later
// process of berth reads it.
func (s *store) closeIO() {
	for _, c := range s.containersOf("") {
		c.closeIO()
	}
}

// turn lets one operation at a time change a sandbox or a container.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn. The caller calls give when it is done.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeIf is take, but gives the turn back if check then returns an error.
func (t turn) takeIf(ctx context.Context, check func() error) error {
	if err := t.take(ctx); err != nil {
		return err
	}
	if err := check(); err != nil {
		t.give()
		return err
	}
	return nil
}

func (t turn) give() { <-t }
