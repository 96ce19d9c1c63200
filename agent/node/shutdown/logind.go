package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// The names of systemd-logind (org.freedesktop.login1(5)) and of systemd
// (org.freedesktop.systemd1(5)) on the bus.
const (
	logindName      = "org.freedesktop.login1"
	logindPath      = dbus.ObjectPath("/org/freedesktop/login1")
	logindInterface = "org.freedesktop.login1.Manager"
	announcement    = "PrepareForShutdown"
	logindUnit      = "systemd-logind.service"

	systemdName      = "org.freedesktop.systemd1"
	systemdPath      = dbus.ObjectPath("/org/freedesktop/systemd1")
	systemdInterface = "org.freedesktop.systemd1.Manager"
)

// logind is the real [Bus].
type logind struct {
	conn      *dbus.Conn
	announced chan bool
	// signals is what the connection receives.
	signals chan *dbus.Signal
}

// Logind connects with the machine's systemd-logind, over the system bus. ctx bounds the life of
// the connection.
func Logind(ctx context.Context) (Bus, error) {
	// the uid is given by number: the user's name would have to be looked up
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx),
		dbus.WithAuth(dbus.AuthExternal(strconv.Itoa(os.Getuid()))))
	if err != nil {
		return nil, fmt.Errorf("connecting with the system bus: %w", err)
	}
	l := &logind{conn: conn, announced: make(chan bool), signals: make(chan *dbus.Signal, 1)}
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(logindName), dbus.WithMatchObjectPath(logindPath),
		dbus.WithMatchInterface(logindInterface), dbus.WithMatchMember(announcement))
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("listening for announcements of shutdowns: %w", err)
	}
	conn.Signal(l.signals)
	go l.listen()
	return l, nil
}

// listen passes on logind's announcements until the connection has ended.
func (l *logind) listen() {
	defer close(l.announced)
	for {
		select {
		case <-l.conn.Context().Done():
			return
		case s := <-l.signals:
			if s == nil || s.Name != logindInterface+"."+announcement || len(s.Body) == 0 {
				continue
			}
			begins, ok := s.Body[0].(bool)
			if !ok || !l.sent(s) {
				continue
			}
			select {
			case l.announced <- begins:
			case <-l.conn.Context().Done():
				return
			}
		}
	}
}

// sent reports whether logind has sent a signal. Everybody may send signals on the system bus, and
// one that is sent to this connection alone need not match what it listens for.
func (l *logind) sent(s *dbus.Signal) bool {
	var owner string
	err := l.conn.BusObject().CallWithContext(l.conn.Context(), "org.freedesktop.DBus.GetNameOwner", 0,
		logindName).Store(&owner)
	return err == nil && s.Sender == owner
}

// Announced implements [Bus].
func (l *logind) Announced() <-chan bool { return l.announced }

// Close implements [Bus].
func (l *logind) Close() { _ = l.conn.Close() } // what cannot be closed is gone already

// property reads a property of logind.
func (l *logind) property(ctx context.Context, name string, into any) error {
	call := l.conn.Object(logindName, logindPath).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0,
		logindInterface, name)
	if err := call.Store(into); err != nil {
		return fmt.Errorf("reading %s of systemd-logind: %w", name, err)
	}
	return nil
}

// DelayMax implements [Bus].
func (l *logind) DelayMax(ctx context.Context) (time.Duration, error) {
	var microseconds uint64
	err := l.property(ctx, "InhibitDelayMaxUSec", &microseconds)
	return time.Duration(microseconds) * time.Microsecond, err
}

// Preparing implements [Bus].
func (l *logind) Preparing(ctx context.Context) (bool, error) {
	var on bool
	err := l.property(ctx, "PreparingForShutdown", &on)
	return on, err
}

// Reload implements [Bus]: logind reads its configuration again at SIGHUP.
func (l *logind) Reload(ctx context.Context) error {
	call := l.conn.Object(systemdName, systemdPath).CallWithContext(ctx, systemdInterface+".KillUnit", 0, logindUnit,
		"all", int32(unix.SIGHUP))
	if call.Err != nil {
		return fmt.Errorf("making systemd-logind read its configuration again: %w", call.Err)
	}
	return nil
}

// Inhibit implements [Bus].
func (l *logind) Inhibit(ctx context.Context) (io.Closer, error) {
	call := l.conn.Object(logindName, logindPath).CallWithContext(ctx, logindInterface+".Inhibit", 0, "shutdown", "berth",
		"berth ends the pods of this node first", "delay")
	var fd dbus.UnixFD
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("taking a delay lock of systemd-logind: %w", err)
	}
	file := os.NewFile(uintptr(fd), "systemd-logind's lock")
	if file == nil {
		return nil, errors.New("taking a delay lock of systemd-logind: it gave no open file")
	}
	return file, nil
}
