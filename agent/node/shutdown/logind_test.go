package shutdown

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// busConfig is that of a bus with the policy of a system bus (dbus-daemon(1)), on which everybody
// may also own a name.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><deny send_type="method_call"/><allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/><allow receive_type="method_return"/>
    <allow receive_type="error"/><allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus"/>
  </policy>
</busconfig>`

// startBus makes a bus of its own the system bus of the test.
func startBus(t *testing.T) {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("no dbus-daemon")
	}
	dir := t.TempDir()
	socket, config := filepath.Join(dir, "bus"), filepath.Join(dir, "config")
	if err := os.WriteFile(config, fmt.Appendf(nil, busConfig, socket), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), program, "--config-file="+config, "--nofork", "--print-address")
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", strings.TrimSpace(address))
}

// join returns a connection with the bus.
func join(t *testing.T) *dbus.Conn {
	t.Helper()
	conn, err := dbus.ConnectSystemBus()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// announce sends an announcement: to everybody, or to one connection if to is its name.
func announce(t *testing.T, from *dbus.Conn, to string, begins bool) {
	t.Helper()
	m := &dbus.Message{Type: dbus.TypeSignal, Body: []any{begins}, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(logindPath),
		dbus.FieldInterface: dbus.MakeVariant(logindInterface),
		dbus.FieldMember:    dbus.MakeVariant(announcement),
		dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(true)),
	}}
	if to != "" {
		m.Headers[dbus.FieldDestination] = dbus.MakeVariant(to)
	}
	if call := from.Send(m, nil); call != nil && call.Err != nil {
		t.Fatal(call.Err)
	}
}

// Everybody may send signals on the system bus. Only those of logind are announcements.
func TestOnlyLogindAnnounces(t *testing.T) {
	startBus(t)
	owner, stranger := join(t), join(t)
	if _, err := owner.RequestName(logindName, 0); err != nil {
		t.Fatal(err)
	}
	bus, err := Logind(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	own, ok := bus.(*logind)
	if !ok {
		t.Fatalf("a %T", bus)
	}
	announce(t, stranger, "", true)
	announce(t, stranger, own.conn.Names()[0], true)
	// what a connection sends comes in order, but the two connections are not in order
	if err := stranger.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil {
		t.Fatal(err)
	}
	announce(t, owner, "", false)
	select {
	case begins := <-bus.Announced():
		if begins {
			t.Error("a stranger announced a shutdown")
		}
	case <-time.After(time.Minute):
		t.Error("logind's announcement did not come")
	}
}
