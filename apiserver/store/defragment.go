package store

import (
	"context"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Defragment gives the disk back what the running store of a data directory has free inside of its
// file: etcd itself keeps that for later writes. It returns the size of the file before and after,
// in bytes. Reads and writes wait meanwhile, and the disk must have room for a second file. A store
// that was full may be written again.
func Defragment(ctx context.Context, dataDir string) (before, after int64, err error) {
	if err := running(ctx, dataDir); err != nil {
		return 0, 0, err
	}
	if before, err = size(dataDir); err != nil {
		return 0, 0, err
	}
	if !roomForCopy(dataDir) {
		return 0, 0, fmt.Errorf("defragment the store of %s: its disk needs %d MiB for the copy: free some space", dataDir,
			(before+leastFree)>>20)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{Endpoint(dataDir)}, DialTimeout: dialTimeout, Context: ctx, Logger: zap.NewNop(),
	})
	if err != nil {
		return 0, 0, fmt.Errorf("reach the store of %s: %w", dataDir, err)
	}
	defer func() { _ = client.Close() }() // everything is done then
	if _, err := client.Defragment(ctx, Endpoint(dataDir)); err != nil {
		return 0, 0, fmt.Errorf("defragment the store of %s: %w", dataDir, err)
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("ask the store of %s for its alarms: %w", dataDir, err)
	}
	for _, a := range fullAlarms(alarms.Alarms) {
		// A store that is still full raises it again at the next write.
		if _, err := client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
			return 0, 0, fmt.Errorf("end the alarm of the store of %s: %w", dataDir, err)
		}
	}
	after, err = size(dataDir)
	return before, after, err
}

// roomForCopy reports whether the disk has room for a copy of a store's file, and for writes
// afterwards. etcd ends if it cannot make the copy.
func roomForCopy(dataDir string) bool {
	info, err := os.Stat(database(folder(dataDir)))
	if err != nil {
		return false
	}
	free, err := freeSpace(folder(dataDir))
	return err == nil && free > uint64(info.Size())+leastFree
}

// size returns the size of the file of a running store.
func size(dataDir string) (int64, error) {
	info, err := os.Stat(database(folder(dataDir)))
	if err != nil {
		return 0, fmt.Errorf("find the file of the store: %w", err)
	}
	return info.Size(), nil
}
