package iptables

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tunnel makes the interface tun0 of this network namespace, to which another machine at 192.0.2.1
// is connected. What is written to the file comes from there.
func tunnel(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("the kernel has no tunnels: %v", err)
	}
	file := os.NewFile(uintptr(fd), "/dev/net/tun")
	t.Cleanup(func() { _ = file.Close() })
	request, err := unix.NewIfreq("tun0")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"ip link set lo up", "ip address add 192.0.2.2/24 dev tun0", "ip link set tun0 up",
		"echo 1 >/proc/sys/net/ipv4/conf/tun0/route_localnet", // as kube-proxy does
	} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	return file
}

// datagram is a packet of UDP over IPv4, whose payload is text. It has no checksum of UDP.
func datagram(from, to net.IP, port int, text string) []byte {
	const head, udp = 20, 8
	p := make([]byte, head+udp, head+udp+len(text))
	p[0], p[8], p[9] = 4<<4|head/4, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(cap(p)))
	copy(p[12:], from.To4())
	copy(p[16:], to.To4())
	sum := uint32(0)
	for i := 0; i < head; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(p[head:], 40000)
	binary.BigEndian.PutUint16(p[head+2:], uint16(port))
	binary.BigEndian.PutUint16(p[head+4:], uint16(udp+len(text)))
	return append(p, text...)
}

// A packet from another machine to 127.0.0.1 reaches a program of the node where route_localnet is
// set, and none with the chains. Packets of the node itself do, and those to its own address.
func TestNoPacketsFromElsewhereToLoopback(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("a network namespace takes root")
	}
	for _, program := range []string{"iptables", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("this host has no %s", program)
		}
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	elsewhere := tunnel(t)
	listener, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.LocalAddr().(*net.UDPAddr).Port
	send := func(to net.IP, text string) {
		t.Helper()
		if _, err := elsewhere.Write(datagram(net.IPv4(192, 0, 2, 1), to, port, text)); err != nil {
			t.Fatal(err)
		}
	}
	loopback, own := net.IPv4(127, 0, 0, 1), net.IPv4(192, 0, 2, 2)
	// The packets arrive in the order in which they are sent: what does not come before the next one
	// was dropped.
	wants := func(what, from, text string) {
		t.Helper()
		_ = listener.SetReadDeadline(time.Now().Add(time.Minute))
		buffer := make([]byte, 100)
		n, sender, err := listener.ReadFromUDPAddrPort(buffer)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := fmt.Sprint(sender.Addr(), " ", string(buffer[:n])); got != from+" "+text {
			t.Errorf("%s: %q arrives, want %q from %s", what, got, text, from)
		}
	}
	send(loopback, "before")
	wants("without the chains", "192.0.2.1", "before")
	New(Host, slog.New(slog.NewTextHandler(t.Output(), nil))).keep(t.Context(), "iptables",
		append(hint(), firewall()...))
	send(loopback, "martian")
	send(own, "after")
	wants("after a packet to loopback", "192.0.2.1", "after")
	local, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: loopback, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	if _, err := local.Write([]byte("local")); err != nil {
		t.Fatal(err)
	}
	wants("of the node itself", "127.0.0.1", "local")
}
