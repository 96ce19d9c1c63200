package images

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
)

const (
	// releaseTimeout bounds the end of a lease.
	releaseTimeout = 10 * time.Second
	// leaseLife is when containerd ends a lease that nobody ends.
	leaseLife = 24 * time.Hour
	// leaseLabel and leaseValue mark the leases of a service that is alone.
	leaseLabel, leaseValue = "berth.dev/lease", "alone"
)

// Leased returns a context with a lease, and what ends the lease. The lease keeps what is
// downloaded or made in this context from containerd's garbage collection. Ending it also works
// when the caller has given up. A lease of a service that is not alone, and whose process is
// killed, is ended by containerd after a day. If the context has a lease already, that one counts.
func (s *Service) Leased(ctx context.Context) (context.Context, func(), error) {
	opts := []leases.Opt{leases.WithRandomID(), leases.WithExpiration(leaseLife)}
	if s.cfg.Alone {
		opts = append(opts, leases.WithLabel(leaseLabel, leaseValue))
	}
	ctx, done, err := s.client.WithLease(ctx, opts...)
	if err != nil {
		return nil, nil, fmt.Errorf("make a containerd lease: %w", err)
	}
	return ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = done(ending)
	}, nil
}

// EndLeases ends the leases that an earlier process has left, so that containerd collects what they
// keep. The service must be alone, and must not have begun anything. Leases of others stay.
func (s *Service) EndLeases(ctx context.Context) error {
	manager := s.client.LeasesService()
	left, err := manager.List(ctx, fmt.Sprintf("labels.%q==%s", leaseLabel, leaseValue))
	if err != nil {
		return fmt.Errorf("look for containerd leases of an earlier process: %w", err)
	}
	var errs []error
	for _, lease := range left {
		if err := manager.Delete(ctx, lease); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("end the containerd lease %s of an earlier process: %w", lease.ID, err))
		}
	}
	return errors.Join(errs...)
}
