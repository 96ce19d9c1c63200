package shutdown

import (
	"context"
	"io"
	"time"
)

// Bus is a connection with systemd-logind (org.freedesktop.login1(5)).
type Bus interface {
	// DelayMax returns the longest time that logind waits for delay locks (InhibitDelayMaxUSec).
	DelayMax(ctx context.Context) (time.Duration, error)
	// Reload makes logind read its configuration again. It does not wait for the end of that.
	Reload(ctx context.Context) error
	// Inhibit takes a delay lock of shutdowns. Closing the lock releases it.
	Inhibit(ctx context.Context) (lock io.Closer, err error)
	// Announced receives the announcements of logind (PrepareForShutdown): true for a shutdown that
	// begins, false for one that was cancelled. It is closed when the connection is gone.
	Announced() <-chan bool
	// Preparing reports whether logind has announced a shutdown (PreparingForShutdown).
	Preparing(ctx context.Context) (bool, error)
	// Close ends the connection. A lock stays.
	Close()
}
