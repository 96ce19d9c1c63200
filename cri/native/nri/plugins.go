package nri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/berthd/berth/internal/localrpc"
)

// Config is where plugins come from.
type Config struct {
	// Socket is where plugins connect. Only root may.
	Socket string
	// PluginDir has the plugins that are started, each named INDEX-NAME.
	PluginDir string
	// ConfigDir has the plugins' own configurations, each named as its plugin with ".conf".
	ConfigDir string
}

// Host does what plugins want of containers on their own account.
type Host interface {
	// UpdateResources changes limits of a container, by those that are set. It returns all that the
	// container has then.
	UpdateResources(ctx context.Context, id string, limits *api.LinuxResources) (*api.LinuxResources, error)
}

// Plugins are the plugins of a runtime. Make them with [New], and call [Plugins.Start] and
// [Plugins.Close].
type Plugins struct {
	cfg    Config
	host   Host
	log    *slog.Logger
	asked  *adaptation.Adaptation
	socket os.FileInfo // once it listens

	mu         sync.Mutex
	pods       map[string]*api.PodSandbox
	containers map[string]*api.Container
	wanted     []*api.ContainerUpdate // which nobody has made yet
	closed     bool

	more    chan struct{}   // has a value if something is wanted
	life    context.Context //nolint:containedctx // the life of the goroutine that does what is wanted
	end     context.CancelFunc
	working sync.WaitGroup
}

// New prepares plugins, of which none is there before [Plugins.Start]. version is berth's, which
// plugins are told.
func New(cfg Config, version string, host Host, log *slog.Logger) (*Plugins, error) {
	p := &Plugins{
		cfg: cfg, host: host, log: log, pods: map[string]*api.PodSandbox{}, containers: map[string]*api.Container{},
		more: make(chan struct{}, 1),
	}
	p.life, p.end = context.WithCancel(context.Background())
	// The library reports as an error that there are no plugins in WebAssembly, which berth is built
	// without.
	logTo.CompareAndSwap(nil, slog.New(slog.DiscardHandler))
	takeLog()
	var err error
	p.asked, err = adaptation.New("berth", version, p.synchronize, p.update,
		adaptation.WithSocketPath(filepath.Join(p.hidden(), "s")), adaptation.WithPluginPath(cfg.PluginDir),
		adaptation.WithPluginConfigPath(cfg.ConfigDir),
		adaptation.WithTTRPCOptions([]ttrpc.ClientOpts{ttrpc.WithUnaryClientInterceptor(inTime)}, nil))
	if err != nil {
		return nil, fmt.Errorf("prepare NRI plugins: %w", err)
	}
	logTo.Store(log)
	return p, nil
}

// Start starts the plugins of the directory and listens for others. pods and containers are those
// that the runtime has already. It fails if others than root could change or replace a plugin or
// its configuration, or if somebody else uses the socket.
func (p *Plugins) Start(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) error {
	for _, dir := range []string{p.cfg.PluginDir, p.cfg.ConfigDir} {
		if err := onlyRoots(dir); err != nil {
			return fmt.Errorf("start NRI plugins: %w", err)
		}
	}
	if err := localrpc.Free(ctx, p.cfg.Socket); err != nil {
		return fmt.Errorf("listen for NRI plugins on %s: %w", p.cfg.Socket, err)
	}
	p.mu.Lock()
	for _, pod := range pods {
		p.pods[pod.GetId()] = pod
	}
	for _, c := range containers {
		p.containers[c.GetId()] = c
	}
	p.mu.Unlock()
	p.working.Go(p.work)
	if err := os.RemoveAll(p.hidden()); err != nil { // of a process that was killed
		return fmt.Errorf("listen for NRI plugins: %w", err)
	}
	if err := p.asked.Start(); err != nil {
		return fmt.Errorf("start NRI plugins: %w", err)
	}
	if err := p.publish(); err != nil {
		return fmt.Errorf("listen for NRI plugins on %s: %w", p.cfg.Socket, err)
	}
	return nil
}

// hidden is the directory in which the library makes the socket, with mode 0700. The library leaves
// the socket's own mode to the umask.
func (p *Plugins) hidden() string {
	return filepath.Join(filepath.Dir(p.cfg.Socket), "."+filepath.Base(p.cfg.Socket))
}

// publish gives the socket its mode and its place.
func (p *Plugins) publish() (err error) {
	made := filepath.Join(p.hidden(), "s")
	if err := os.Chmod(made, 0o600); err != nil {
		return err
	}
	if p.socket, err = os.Lstat(made); err != nil {
		return err
	}
	if err := os.Rename(made, p.cfg.Socket); err != nil {
		return err
	}
	return os.Remove(p.hidden())
}

// inTime asks a plugin until ctx ends. The library would wait longer for a plugin that reads
// nothing, and hold up all pods.
func inTime(
	ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, _ *ttrpc.UnaryClientInfo, ask ttrpc.Invoker,
) error {
	answered := make(chan error, 1)
	go func() { answered <- ask(ctx, req, resp) }()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-answered: // it only was slow: its failure policy says what follows
		return err
	case <-time.After(unread):
		return fmt.Errorf("%w: it reads nothing", ttrpc.ErrClosed) // it is disconnected, which ends the question
	}
}

// unread is how long after the end of a question its writer has to come back.
const unread = 100 * time.Millisecond

// Close ends the plugins that were started and the socket, and waits for what is being done for
// plugins. Those that connected by themselves notice the end of the process.
func (p *Plugins) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.asked.Stop()
	if now, err := os.Lstat(p.cfg.Socket); err == nil && p.socket != nil && os.SameFile(now, p.socket) {
		_ = os.Remove(p.cfg.Socket)
	}
	p.end()
	p.working.Wait()
}

// synchronize tells a plugin of everything that there is.
func (p *Plugins) synchronize(ctx context.Context, tell adaptation.SyncCB) error {
	p.mu.Lock()
	pods, containers := slices.Collect(maps.Values(p.pods)), slices.Collect(maps.Values(p.containers))
	p.mu.Unlock()
	containers = slices.DeleteFunc(containers, func(c *api.Container) bool {
		return c.GetState() == api.ContainerState_CONTAINER_STOPPED
	})
	updates, err := tell(ctx, pods, containers)
	p.want(updates)
	return err
}

// update does what a plugin wants without having been asked. It returns what could not be done.
func (p *Plugins) update(
	ctx context.Context, updates []*api.ContainerUpdate,
) (failed []*api.ContainerUpdate, err error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return updates, errors.New("the runtime is ending")
	}
	p.working.Add(1) // Close waits
	p.mu.Unlock()
	defer p.working.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	var errs []error
	for _, u := range updates {
		if err := p.make(ctx, u); err != nil {
			failed = append(failed, u)
			errs = append(errs, err)
		}
	}
	return failed, errors.Join(errs...)
}

// make makes a change, and returns an error unless the plugin does not care.
func (p *Plugins) make(ctx context.Context, u *api.ContainerUpdate) error {
	id := u.GetContainerId()
	limits, err := p.host.UpdateResources(ctx, id, u.GetLinux().GetResources())
	if err == nil {
		p.note(id, hasLimits(limits))
	} else if u.GetIgnoreFailure() {
		err = nil
	}
	return err
}

// hasLimits notes what limits a container has.
func hasLimits(limits *api.LinuxResources) func(*api.Container) {
	return func(c *api.Container) {
		if c.GetLinux() != nil {
			c.Linux.Resources = limits
		}
	}
}

// want notes what plugins want of other containers.
func (p *Plugins) want(updates []*api.ContainerUpdate) {
	updates = slices.DeleteFunc(updates, func(u *api.ContainerUpdate) bool { return u == nil })
	if len(updates) == 0 {
		return
	}
	p.mu.Lock()
	p.wanted = append(p.wanted, updates...)
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// work does what plugins want of other containers, until Close.
func (p *Plugins) work() {
	for {
		select {
		case <-p.life.Done():
			return
		case <-p.more:
		}
		for u := p.next(); u != nil; u = p.next() {
			if err := p.make(p.life, u); err != nil {
				p.log.Warn("limits that an NRI plugin wants could not be set", "container", u.GetContainerId(), "err", err)
			}
		}
	}
}

// next takes the first change that plugins want and nobody has made, nil if there is none.
func (p *Plugins) next() *api.ContainerUpdate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wanted) == 0 || p.closed {
		return nil
	}
	first := p.wanted[0]
	p.wanted = p.wanted[1:]
	return first
}

// told are a container and its pod as plugins were told of them, as copies. It is false if they
// were not.
func (p *Plugins) told(id string) (pod *api.PodSandbox, c *api.Container, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, known = p.containers[id]
	if !known {
		return nil, nil, false
	}
	return proto.CloneOf(p.pods[c.GetPodSandboxId()]), proto.CloneOf(c), true
}

// note changes what is known of a container. It is false if the container is not known, or is so
// already.
func (p *Plugins) note(id string, change func(*api.Container)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, known := p.containers[id]
	if !known {
		return false
	}
	changed := proto.CloneOf(c) // others may read the old one
	change(changed)
	p.containers[id] = changed
	return !proto.Equal(c, changed)
}
