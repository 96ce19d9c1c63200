package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"
)

// The wire format of grpc.health.v1, which is small enough to write without the library. A message
// has one byte (0: not compressed), four bytes of length, and the protobuf. Field 1 of a request is
// the service's name, and field 1 of an answer is the state.
const (
	healthCheck    = "/grpc.health.v1.Health/Check"
	grpcPrefix     = 5
	stateServing   = 1
	stateNot       = 2
	codeNotFound   = "5"
	codeUnknownRPC = "12"
)

// serveGRPC runs a gRPC health server without TLS. It knows the services "" and "known". Both
// serve; with --not-serving they do not.
func serveGRPC(args []string) error {
	flags := flag.NewFlagSet("grpc", flag.ContinueOnError)
	listen := flags.String("listen", ":9090", "address")
	not := flags.Bool("not-serving", false, "answer NOT_SERVING")
	if err := flags.Parse(args); err != nil {
		return err
	}
	state := byte(stateServing)
	if *not {
		state = stateNot
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Addr: *listen, Handler: health(state), Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	fmt.Println("serving gRPC on", *listen)
	select {
	case err := <-failed:
		return err
	case s := <-signals():
		fmt.Println("signal", s)
		return nil
	}
}

func health(state byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 4096))
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		h.Set("Trailer", "Grpc-Status")
		switch {
		case r.URL.Path != healthCheck:
			h.Set("Grpc-Status", codeUnknownRPC)
		case !knownService(body):
			h.Set("Grpc-Status", codeNotFound)
		default:
			_, _ = w.Write([]byte{0, 0, 0, 0, 2, 0x08, state})
			h.Set("Grpc-Status", "0")
		}
	}
}

func knownService(body []byte) bool {
	if len(body) <= grpcPrefix {
		return true
	}
	return bytes.Equal(body[grpcPrefix:], append([]byte{0x0a, 5}, "known"...))
}
