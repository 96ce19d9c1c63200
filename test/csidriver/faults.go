package csidriver

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Fault is what goes wrong with a call. It is the content of the call's file in faults.
type Fault string

const (
	// Fail makes the call fail without an effect.
	Fail Fault = "fail"
	// Hang makes the call wait until the caller gives up, without an effect.
	Hang Fault = "hang"
	// Crash ends the driver's process after the call took effect and before its answer. It happens
	// once, because the file is removed.
	Crash Fault = "crash"
	// Late makes the call fail after it took effect, as if its answer were lost.
	Late Fault = "late"
)

// Refuse makes a call fail with a code of gRPC, without an effect.
func Refuse(code codes.Code) Fault { return Fault("refuse " + code.String()) }

// refusal returns the error of a fault of [Refuse], nil for any other.
func refusal(f Fault) error {
	for code := codes.OK + 1; code <= codes.Unauthenticated; code++ {
		if f == Refuse(code) {
			return status.Error(code, "told to refuse")
		}
	}
	return nil
}

// Call is a call that the driver got.
type Call struct {
	Method  string
	Request json.RawMessage
	// Code is the call's result as a code of gRPC.
	Code string
}

// Calls returns the calls that the driver in a directory got, the oldest first.
func Calls(dir string) ([]Call, error) {
	data, err := os.ReadFile(filepath.Join(dir, "calls"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var calls []Call
	for line := range strings.Lines(string(data)) {
		var c Call
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// Set makes the calls of a method fail from now on. The empty fault ends that.
func Set(dir, method string, f Fault) error {
	path := filepath.Join(dir, "faults", method)
	if f == "" {
		return os.RemoveAll(path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(f), 0o600)
}

// intercept records every call and applies its fault.
func (d *Driver) intercept(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (resp any, err error) {
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	path := filepath.Join(d.Dir, "faults", method)
	text, _ := os.ReadFile(path)
	if Fault(text) == Hang { // so that the call is in the file while it hangs
		d.write(method, req, status.Error(codes.DeadlineExceeded, ""))
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	defer func() { d.write(method, req, err) }()
	if err := refusal(Fault(text)); err != nil {
		return nil, err
	}
	switch Fault(text) {
	case Fail:
		return nil, status.Error(codes.Internal, "told to fail")
	case Crash:
		_, err = handle(ctx, req)
		d.write(method, req, err)
		_ = os.Remove(path)
		d.crash()
		return nil, status.Error(codes.Unavailable, "crashed")
	case Late:
		if _, err := handle(ctx, req); err != nil {
			return nil, err
		}
		return nil, status.Error(codes.Unavailable, "told to lose the answer")
	}
	return handle(ctx, req)
}

// write adds a call to the file of calls.
func (d *Driver) write(method string, req any, err error) {
	c := Call{Method: method, Code: status.Code(err).String()}
	if m, ok := req.(proto.Message); ok {
		c.Request, _ = protojson.Marshal(m)
	}
	line, _ := json.Marshal(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	f, openErr := os.OpenFile(filepath.Join(d.Dir, "calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if openErr != nil {
		return
	}
	defer f.Close()
	_, _ = f.Write(append(line, '\n'))
}
