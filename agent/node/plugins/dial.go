package plugins

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial returns a connection to the gRPC server on a unix socket, given as an absolute path or as
// unix://PATH. The connection is made at its first use. The caller closes it.
func Dial(socket string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	path := strings.TrimPrefix(socket, "unix://")
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the endpoint %q is no absolute path of a unix socket", socket)
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return grpc.NewClient("passthrough:///localhost", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
	}, opts...)...)
}
