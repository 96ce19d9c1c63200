package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/berthd/berth/agent/cluster/certs"
)

// serveAPI serves the API on a port until the test's end; with TLS if secure is not nil.
func serveAPI(t *testing.T, s *Server, secure *tls.Config) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, l, s.apiRoutes(), secure) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// serverTLS is the TLS config of a node that asks callers for certificates.
func serverTLS(t *testing.T) *tls.Config {
	t.Helper()
	cert, err := certs.NewSelfSigned(t.TempDir(), []string{"node"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return certs.ServerConfig(cert, func() *x509.CertPool { return x509.NewCertPool() }, certs.Limits{})
}

// stingy is a caller of HTTP/2 that lets the server send no byte of a body.
type stingy struct {
	t    *testing.T
	conn *tls.Conn
	next uint32
}

// Types of frames, flags and a setting of HTTP/2 (RFC 9113).
const (
	headersFrame, resetFrame, settingsFrame = 1, 3, 4
	endStream, endHeaders                   = 1, 4
	initialWindowSize                       = 4
)

func newStingy(t *testing.T, address string) *stingy {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	c := &stingy{t: t, conn: conn, next: 1}
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	c.write(settingsFrame, 0, 0, []byte{0, initialWindowSize, 0, 0, 0, 0})
	return c
}

func (c *stingy) write(kind, flags byte, stream uint32, payload []byte) {
	c.t.Helper()
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	head = binary.BigEndian.AppendUint32(append(head, flags), stream)
	if _, err := c.conn.Write(append(head, payload...)); err != nil {
		c.t.Fatal(err)
	}
}

// get asks for a path on a stream of its own, with more headers: names and values by turns.
func (c *stingy) get(path string, headers ...string) {
	c.t.Helper()
	block := []byte{0x82, 0x87} // :method GET, :scheme https; then literals (RFC 7541)
	block = append(append(block, 0x04, byte(len(path))), path...)
	block = append(append(block, 0x01, 4), "node"...)
	block = append(append(block, 0x00, 5), "x-big"...)
	block = append(append(block, 100), bytes.Repeat([]byte("x"), 100)...)
	for i, text := range headers {
		if i%2 == 0 {
			block = append(block, 0x00)
		}
		block = append(append(block, byte(len(text))), text...)
	}
	c.write(headersFrame, endStream|endHeaders, c.next, block)
	c.next += 2
}

// resets reads until so many streams have been reset.
func (c *stingy) resets(n int) {
	c.t.Helper()
	for head := make([]byte, 9); n > 0; {
		if _, err := io.ReadFull(c.conn, head); err != nil {
			c.t.Fatalf("%d streams are not reset: %v", n, err)
		}
		size := int64(binary.BigEndian.Uint32(head) >> 8)
		if _, err := io.CopyN(io.Discard, c.conn, size); err != nil {
			c.t.Fatal(err)
		}
		if head[3] == resetFrame {
			n--
		}
	}
}

// refuses is a guard that refuses everybody, as the real one does.
func refuses(w http.ResponseWriter) bool {
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = io.WriteString(w, "Unauthorized")
	return false
}

// TestRefusalsThatCannotBeSent has as many streams as a connection may have, on none of which the
// server may send why it refuses: all of them end soon, and others may begin. The same holds for
// other answers without a handler.
func TestRefusalsThatCannotBeSent(t *testing.T) {
	for name, tc := range map[string]struct {
		path string
		let  bool
	}{"refused": {"/pods", false}, "not there": {"/nope", true}, "health": {"/healthz", true}} {
		t.Run(name, func(t *testing.T) {
			s := newAPI(t, guardFunc(func(w http.ResponseWriter, _ *http.Request, _ string) bool {
				return tc.let || refuses(w)
			}), everything)
			s.refusalTimeout = 50 * time.Millisecond
			c := newStingy(t, serveAPI(t, s, serverTLS(t)))
			for range 2 {
				for range maxStreams {
					c.get(tc.path)
				}
				c.resets(maxStreams)
			}
		})
	}
}

// TestMalformedRequestsEnd has requests that net/http refuses by itself, without a handler. The
// refusals cannot be sent.
func TestMalformedRequestsEnd(t *testing.T) {
	s := newAPI(t, &doorkeeper{}, everything)
	s.writeTimeout = 50 * time.Millisecond
	c := newStingy(t, serveAPI(t, s, serverTLS(t)))
	for range maxStreams {
		c.get("/pods", "te", "x")
	}
	c.resets(maxStreams)
}

// TestGuardTakesItsTime has a guard whose questions may take longer than a refusal may take to be
// sent: the deadline begins with the refusal.
func TestGuardTakesItsTime(t *testing.T) {
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	s := newAPI(t, guardFunc(func(to http.ResponseWriter, _ *http.Request, _ string) bool {
		if !w.last.IsZero() {
			t.Errorf("the guard has until %v", w.last)
		}
		return refuses(to)
	}), everything)
	began := time.Now()
	s.apiRoutes().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pods", nil))
	if w.Code != http.StatusUnauthorized || w.last.Before(began) || w.last.After(time.Now().Add(refusalTimeout)) {
		t.Errorf("%d until %v, began at %v", w.Code, w.last, began)
	}
}

// TestRefusedRequestsAreDropped has a stream on which the refusal cannot be sent: what the request
// holds does not wait for the end of the stream.
func TestRefusedRequestsAreDropped(t *testing.T) {
	held := make(chan weak.Pointer[string], 1)
	s := newAPI(t, guardFunc(func(w http.ResponseWriter, r *http.Request, _ string) bool {
		held <- weak.Make(&r.Header["X-Big"][0])
		return refuses(w)
	}), everything)
	s.refusalTimeout = time.Hour
	c := newStingy(t, serveAPI(t, s, serverTLS(t)))
	c.get("/pods")
	header := <-held
	for end := time.Now().Add(time.Minute); header.Value() != nil; runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("the request's header is held")
		}
	}
}

// deadlineRecorder notes the last deadline that was set.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlineRecorder) SetWriteDeadline(at time.Time) error { d.last = at; return nil }

// TestLastingRequestsHaveNoDeadline calls the handlers that outlive the time in which a refusal is
// to be sent.
func TestLastingRequestsHaveNoDeadline(t *testing.T) {
	s := newAPI(t, &doorkeeper{}, everything)
	for _, e := range []endpoint{
		s.lasting("a", nil), s.stream("b", nil), s.watch("c", nil), s.profile(nil), s.quick("d", nil), s.slow("e", nil),
	} {
		mux := newMux(waitTimeout)
		called := false
		e.serve = func(w http.ResponseWriter, _ *http.Request) {
			called = true
			of := w
			if s, ok := w.(*seat); ok {
				of = s.ResponseWriter
			}
			at := of.(*deadlineRecorder).last
			if lasts := e.path != "d" && e.path != "e"; lasts != at.IsZero() {
				t.Errorf("%s has the deadline %v", e.path, at)
			}
		}
		mux.Handle("GET /a", e)
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		guarded{s.routes(mux), &doorkeeper{}}.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/a?watch=true", nil))
		if !called {
			t.Errorf("%s: %d", e.path, w.Code)
		}
	}
}

// TestStreamsOutliveTheDeadlineOfRefusals opens a stream on a connection whose deadline for other
// answers is over before the stream begins.
func TestStreamsOutliveTheDeadlineOfRefusals(t *testing.T) {
	s := newAPI(t, &doorkeeper{}, everything)
	s.backend.(*fixture).execURL = streamServer(t, nil).URL + "/exec/token"
	s.refusalTimeout = -time.Second
	conn, err := tls.Dial("tcp", serveAPI(t, s, serverTLS(t)), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /exec/default/web-node/main?command=sh&input=1&output=1 HTTP/1.1\r\n"+
		"Host: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	for range 2 {
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if text, err := in.ReadString('\n'); err != nil || text != "hello\n" {
			t.Fatalf("%q %v", text, err)
		}
	}
}

// TestLargeCertificatesAtThePort shows a certificate that is larger than a caller's may be.
func TestLargeCertificatesAtThePort(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber:    big.NewInt(1),
		ExtraExtensions: []pkix.Extension{{Id: []int{1, 2, 3}, Value: make([]byte, 64<<10)}},
	}, &x509.Certificate{}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	address := serveAPI(t, newAPI(t, &doorkeeper{}, everything), serverTLS(t))
	for _, shown := range [][]tls.Certificate{nil, {{Certificate: [][]byte{der}, PrivateKey: key}}} {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: shown})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
		answer, err := io.ReadAll(conn)
		if served := bytes.HasPrefix(answer, []byte("HTTP/1.1 200")); served != (shown == nil) {
			t.Errorf("with %d certificates: %q %v", len(shown), answer, err)
		}
		conn.Close()
	}
}
