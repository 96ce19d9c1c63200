package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/apiserver/files"
)

// dialTimeout is how long a store may take to accept a connection on its socket.
const dialTimeout = 5 * time.Second

// revisionBump is added to the revision of a restored store, so that it is above every revision
// that a client has seen: a client which watches from such a revision is told to list again
// (https://etcd.io/docs/v3.6/op-guide/recovery/, "Restoring with revision bump").
const revisionBump = 1_000_000_000

// A whole snapshot has full blocks, and beyond them etcd's checksum of it.
const block, checksum = 512, sha256.Size

// Save writes a snapshot of the running store of a data directory to a file, which is new, the
// caller's, and for nobody else to read: it has all Secrets. An existing file or link of that name
// is replaced, but only when the snapshot is whole; a device or a socket is not, and neither is a
// file of the store.
func Save(ctx context.Context, dataDir, file string) error {
	if err := running(ctx, dataDir); err != nil {
		return err
	}
	if err := refuseTarget(dataDir, file); err != nil {
		return err
	}
	if err := save(ctx, Endpoint(dataDir), file); err != nil {
		return fmt.Errorf("save a snapshot of %s: %w", dataDir, err)
	}
	return nil
}

// refuseTarget returns an error if a snapshot must not take the place of a file.
func refuseTarget(dataDir, file string) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("save a snapshot: %s is there and is no regular file: name a new file", file)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return fmt.Errorf("save a snapshot: %w", err)
	}
	store, err := filepath.EvalSymlinks(folder(dataDir))
	if err != nil {
		return fmt.Errorf("save a snapshot: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("save a snapshot: %w", err)
	}
	if dir == store || strings.HasPrefix(dir, store+"/") {
		return fmt.Errorf("save a snapshot: %s is in the folder of the running store: name a file elsewhere", file)
	}
	return nil
}

// save writes the snapshot to a new file. etcd's own client would open FILE.part: somebody who may
// write to the folder could have put a file of his there, or a link.
func save(ctx context.Context, endpoint, file string) error {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, DialTimeout: dialTimeout, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // says only that its context has ended
	return files.Replace(file, func(w io.Writer) error {
		from, err := c.SnapshotWithVersion(ctx)
		if err != nil {
			return err
		}
		defer from.Snapshot.Close()
		size, err := io.Copy(w, from.Snapshot)
		if err == nil && size%block != checksum {
			err = fmt.Errorf("the store sent %d bytes, which are no whole snapshot", size)
		}
		return err
	})
}

// running returns an error unless a store of the data directory accepts connections: etcd's client
// would wait for ever for a server that was killed and has left its socket.
func running(ctx context.Context, dataDir string) error {
	c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", socket(dataDir))
	if errors.Is(err, fs.ErrPermission) {
		return MayNot(dataDir, err)
	}
	if err != nil {
		return fmt.Errorf("find the running store of %s (start berth-apiserver first; for an external etcd use its own "+
			"etcdctl): %w", dataDir, err)
	}
	return c.Close()
}

// Restore makes the store of a data directory from a snapshot. A store that is there already is
// kept beside it, and Restore returns the folder where; it returns "" if there was none. A crash
// leaves the old store or the restored one in its place, never none. The caller holds the
// directory's [Lock], so that no server runs.
func Restore(dataDir, file string, now time.Time) (kept string, err error) {
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("read the snapshot: %w", err)
	}
	fresh := restoring(dataDir)
	if err := os.RemoveAll(fresh); err != nil {
		return "", fmt.Errorf("remove what a broken-off restore left: %w", err)
	}
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, Name: member, OutputDataDir: fresh, PeerURLs: []string{peerURL},
		InitialCluster: member + "=" + peerURL, InitialClusterToken: "etcd-cluster",
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		if !errors.Is(err, unix.ENOSPC) {
			err = fmt.Errorf("the file is damaged or no snapshot, take another: %w", err)
		}
		return "", errors.Join(fmt.Errorf("restore the snapshot %s: %w", file, err), os.RemoveAll(fresh))
	}
	return replace(dataDir, now)
}
