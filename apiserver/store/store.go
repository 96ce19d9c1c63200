package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
)

const (
	// member is etcd's name of its only member. It is in the data: it never changes.
	member = "berth"
	// peerURL and clientURL are what the member says of itself to other members and their clients.
	// There are none, and nobody listens there.
	peerURL, clientURL = "http://127.0.0.1:2380", "http://127.0.0.1:2379"
	// election is how long, in milliseconds, etcd's only member waits at a start for others to vote
	// for. There are none; it is the least that etcd allows.
	election = 500
	// progressEvery is how often an idle watch hears how far the store is, for which upstream's
	// bookmarks come about once a minute. If a stream has more than 128 watches, etcd tells only some
	// of them each time.
	progressEvery = time.Minute
	// keptEntries is how many entries of its log etcd keeps in memory for members that are behind.
	// There are none.
	keptEntries = 100
	// snapshotEvery is after how many writes etcd drops older entries of its log.
	snapshotEvery = 2000
	// freeAtStart is how many megabytes the file must have free inside for a start to defragment it.
	freeAtStart = 64
	// bufferSize is that of the buffers of each connection, in bytes. The API server has a few for
	// what is no kind of object, and they have little to say.
	bufferSize = 4 << 10
	// limit is how large the file of the content may be, in bytes: the largest for which etcd is made
	// (https://etcd.io/docs/v3.6/dev-guide/limit/).
	limit = 8 << 30
	// longestPath is how long the path of a unix socket may be (unix(7)).
	longestPath = 107
)

// errStopped is of a store that gave no reason for its end.
var errStopped = errors.New("it stopped by itself")

// Store is a running etcd.
type Store struct {
	etcd *embed.Etcd
	// level is of what etcd logs. Its listeners call their own end an error.
	level zap.AtomicLevel
	room  room
	// limit is how large the file of the content may be, in bytes.
	limit int64
	gate  gate
}

// Endpoint returns the address at which the store of a data directory answers, in the form that
// the flag --etcd-servers takes.
func Endpoint(dataDir string) string { return "unix://" + socket(dataDir) }

func socket(dataDir string) string { return filepath.Join(dataDir, "etcd.sock") }

// Start starts the store of a data directory and returns when it can be used. The caller holds the
// directory's [Lock].
func Start(ctx context.Context, dataDir string) (*Store, error) { return start(ctx, dataDir, limit) }

// start starts a store whose file may have that many bytes.
func start(ctx context.Context, dataDir string, limit int64) (*Store, error) {
	level := zap.NewAtomicLevelAt(zap.ErrorLevel)
	starting := new(atomic.Bool)
	config, err := config(dataDir, level, starting)
	if err != nil {
		return nil, err
	}
	config.QuotaBackendBytes = limit
	// Of a process that was killed. The lock says that nobody listens.
	if err := os.Remove(socket(dataDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old socket of the store: %w", err)
	}
	removeSpare(config.Dir)
	etcd, err := startEtcd(config, starting)
	if err != nil {
		return nil, err
	}
	tick(etcd.Server, electing)
	s := &Store{etcd: etcd, level: level, room: room{dir: config.Dir}, limit: limit, gate: newGate()}
	select {
	case <-etcd.Server.ReadyNotify():
		tick(etcd.Server, elected)
		if err := s.endAlarm(ctx); err != nil {
			s.Close()
			return nil, err
		}
		return s, nil
	case err := <-etcd.Err():
		s.Close()
		return nil, fmt.Errorf("start the store in %s: %w", config.Dir, err)
	case <-etcd.Server.StopNotify():
		s.Close()
		return nil, fmt.Errorf("start the store in %s: %w", config.Dir, errStopped)
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("start the store in %s: %w", config.Dir, context.Cause(ctx))
	}
}

// config returns etcd's settings.
func config(dataDir string, level zap.AtomicLevel, starting *atomic.Bool) (*embed.Config, error) {
	path := socket(dataDir)
	if len(path) > longestPath {
		return nil, fmt.Errorf("the path %s has more than %d bytes, which no socket may have: choose a shorter --data-dir",
			path, longestPath)
	}
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the data directory %s is no absolute path", dataDir)
	}
	if _, err := Prepare(dataDir); err != nil {
		return nil, err
	}
	peer, err := url.Parse(peerURL)
	if err != nil {
		return nil, fmt.Errorf("read the store's address: %w", err)
	}
	client, err := url.Parse(clientURL)
	if err != nil {
		return nil, fmt.Errorf("read the store's address: %w", err)
	}
	c := embed.NewConfig()
	c.Name, c.Dir = member, folder(dataDir)
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{{Scheme: "unix", Path: path}}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{*peer}
	c.InitialCluster = c.InitialClusterFromName(member)
	c.EnableGRPCGateway = false
	c.ElectionMs = election
	c.WatchProgressNotifyInterval = progressEvery
	c.GRPCAdditionalServerOptions = []grpc.ServerOption{
		grpc.ReadBufferSize(bufferSize), grpc.WriteBufferSize(bufferSize), grpc.SharedWriteBuffer(true),
	}
	c.SnapshotCount, c.SnapshotCatchUpEntries = snapshotEvery, keptEntries
	if roomForCopy(dataDir) {
		c.BootstrapDefragThresholdMegabytes = freeAtStart
	}
	log, err := logger(level, starting)
	if err != nil {
		return nil, err
	}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	return c, nil
}

// Wait returns why the running store ended, nil if the context ended first.
func (s *Store) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err, ok := <-s.etcd.Err():
		if ok {
			return err
		}
		return errStopped
	case <-s.etcd.Server.StopNotify():
		return errStopped
	}
}

// Close stops the store and waits for its end.
func (s *Store) Close() {
	s.level.SetLevel(zap.FatalLevel)
	s.gate.close()
	s.etcd.Close()
	reserveLog(s.room.dir)
}

// logger returns a logger that writes lines to the standard error.
func logger(level zap.AtomicLevel, starting *atomic.Bool) (*zap.Logger, error) {
	format := zap.NewProductionEncoderConfig()
	format.EncodeTime = zapcore.ISO8601TimeEncoder
	log, err := zap.Config{
		Level: level, Encoding: "console", EncoderConfig: format, DisableStacktrace: true,
		OutputPaths: []string{"stderr"}, ErrorOutputPaths: []string{"stderr"},
	}.Build(zap.WithFatalHook(atStart{starting: starting, later: zapcore.WriteThenFatal}),
		zap.WithPanicHook(atStart{starting: starting, later: zapcore.WriteThenPanic}))
	if err != nil {
		return nil, fmt.Errorf("make the log of the store: %w", err)
	}
	return log.Named("etcd"), nil
}
