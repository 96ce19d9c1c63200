// Package serve serves a [cri.Runtime] on a unix socket, as a CRI service.
//
// Purpose: other processes can use a runtime of this process: an agent that a test started and that
// must run on the fake, or a tool such as crictl. Their calls go over gRPC like those to
// containerd, and cost as much.
//
// Truth owned: none. Concurrency: calls are served in parallel, as the runtime allows.
package serve

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/localrpc"
)

// Start serves rt on a unix socket at path until stop is called. Only the user of this process may
// open the socket. Start makes the socket's directory, and takes the place of a socket on which
// nobody answers. stop returns when no call is running any more.
func Start(ctx context.Context, path string, rt cri.Runtime) (stop func(), err error) {
	if err := localrpc.Free(ctx, path); err != nil {
		return nil, fmt.Errorf("serve the CRI on %s: %w", path, err)
	}
	l, err := localrpc.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("serve the CRI on %s: %w", path, err)
	}
	server := grpc.NewServer()
	s := &service{rt: rt}
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	runtimeapi.RegisterImageServiceServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // ends with Stop
	return func() {
		_ = os.Remove(path) // the next process removes it, too
		server.Stop()
		serving.Wait()
	}, nil
}

// service translates messages into calls.
type service struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	rt cri.Runtime
}

// answer gives an error the gRPC code of its class.
func answer[T any](resp *T, err error) (*T, error) {
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return resp, nil
}

func (s *service) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return answer(s.rt.Version(ctx))
}

func (s *service) Status(ctx context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return answer(s.rt.Status(ctx, r.GetVerbose()))
}

func (s *service) RuntimeConfig(
	ctx context.Context, _ *runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	return answer(s.rt.RuntimeConfig(ctx))
}

func (s *service) UpdateRuntimeConfig(
	ctx context.Context, r *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return answer(&runtimeapi.UpdateRuntimeConfigResponse{}, s.rt.UpdateRuntimeConfig(ctx, r.GetRuntimeConfig()))
}

func (s *service) RunPodSandbox(
	ctx context.Context, r *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	id, err := s.rt.RunPodSandbox(ctx, r.GetConfig(), r.GetRuntimeHandler())
	return answer(&runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, err)
}

func (s *service) StopPodSandbox(
	ctx context.Context, r *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	return answer(&runtimeapi.StopPodSandboxResponse{}, s.rt.StopPodSandbox(ctx, r.GetPodSandboxId()))
}

func (s *service) RemovePodSandbox(
	ctx context.Context, r *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	return answer(&runtimeapi.RemovePodSandboxResponse{}, s.rt.RemovePodSandbox(ctx, r.GetPodSandboxId()))
}

func (s *service) PodSandboxStatus(
	ctx context.Context, r *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	status, err := s.rt.PodSandboxStatus(ctx, r.GetPodSandboxId())
	return answer(&runtimeapi.PodSandboxStatusResponse{Status: status}, err)
}

func (s *service) ListPodSandbox(
	ctx context.Context, r *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	items, err := s.rt.ListPodSandbox(ctx, r.GetFilter())
	return answer(&runtimeapi.ListPodSandboxResponse{Items: items}, err)
}

func (s *service) CreateContainer(
	ctx context.Context, r *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	id, err := s.rt.CreateContainer(ctx, r.GetPodSandboxId(), r.GetConfig(), r.GetSandboxConfig())
	return answer(&runtimeapi.CreateContainerResponse{ContainerId: id}, err)
}

func (s *service) StartContainer(
	ctx context.Context, r *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	return answer(&runtimeapi.StartContainerResponse{}, s.rt.StartContainer(ctx, r.GetContainerId()))
}

func (s *service) StopContainer(
	ctx context.Context, r *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	grace := time.Duration(r.GetTimeout()) * time.Second
	return answer(&runtimeapi.StopContainerResponse{}, s.rt.StopContainer(ctx, r.GetContainerId(), grace))
}

func (s *service) RemoveContainer(
	ctx context.Context, r *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	return answer(&runtimeapi.RemoveContainerResponse{}, s.rt.RemoveContainer(ctx, r.GetContainerId()))
}

func (s *service) ContainerStatus(
	ctx context.Context, r *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	status, err := s.rt.ContainerStatus(ctx, r.GetContainerId())
	return answer(&runtimeapi.ContainerStatusResponse{Status: status}, err)
}

func (s *service) ListContainers(
	ctx context.Context, r *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	items, err := s.rt.ListContainers(ctx, r.GetFilter())
	return answer(&runtimeapi.ListContainersResponse{Containers: items}, err)
}

func (s *service) ReopenContainerLog(
	ctx context.Context, r *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	return answer(&runtimeapi.ReopenContainerLogResponse{}, s.rt.ReopenContainerLog(ctx, r.GetContainerId()))
}

func (s *service) CheckpointContainer(
	ctx context.Context, r *runtimeapi.CheckpointContainerRequest,
) (*runtimeapi.CheckpointContainerResponse, error) {
	timeout := time.Duration(r.GetTimeout()) * time.Second
	err := s.rt.CheckpointContainer(ctx, r.GetContainerId(), r.GetLocation(), timeout)
	return answer(&runtimeapi.CheckpointContainerResponse{}, err)
}

func (s *service) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return answer(s.rt.ExecSync(ctx, r.GetContainerId(), r.GetCmd(), time.Duration(r.GetTimeout())*time.Second))
}

func (s *service) UpdateContainerResources(
	ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	resources := &runtimeapi.ContainerResources{Linux: r.GetLinux(), Windows: r.GetWindows()}
	err := s.rt.UpdateContainerResources(ctx, r.GetContainerId(), resources)
	return answer(&runtimeapi.UpdateContainerResourcesResponse{}, err)
}

func (s *service) ContainerStats(
	ctx context.Context, r *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	stats, err := s.rt.ContainerStats(ctx, r.GetContainerId())
	return answer(&runtimeapi.ContainerStatsResponse{Stats: stats}, err)
}

func (s *service) ListContainerStats(
	ctx context.Context, r *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	stats, err := s.rt.ListContainerStats(ctx, r.GetFilter())
	return answer(&runtimeapi.ListContainerStatsResponse{Stats: stats}, err)
}

func (s *service) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	url, err := s.rt.Exec(ctx, r)
	return answer(&runtimeapi.ExecResponse{Url: url}, err)
}

func (s *service) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	url, err := s.rt.Attach(ctx, r)
	return answer(&runtimeapi.AttachResponse{Url: url}, err)
}

func (s *service) PortForward(
	ctx context.Context, r *runtimeapi.PortForwardRequest,
) (*runtimeapi.PortForwardResponse, error) {
	url, err := s.rt.PortForward(ctx, r)
	return answer(&runtimeapi.PortForwardResponse{Url: url}, err)
}

func (s *service) ListImages(
	ctx context.Context, _ *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	images, err := s.rt.ListImages(ctx)
	return answer(&runtimeapi.ListImagesResponse{Images: images}, err)
}

func (s *service) ImageStatus(
	ctx context.Context, r *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	image, err := s.rt.ImageStatus(ctx, r.GetImage())
	return answer(&runtimeapi.ImageStatusResponse{Image: image}, err)
}

func (s *service) PullImage(
	ctx context.Context, r *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	ref, err := s.rt.PullImage(ctx, r.GetImage(), r.GetAuth(), r.GetSandboxConfig())
	return answer(&runtimeapi.PullImageResponse{ImageRef: ref}, err)
}

func (s *service) RemoveImage(
	ctx context.Context, r *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	return answer(&runtimeapi.RemoveImageResponse{}, s.rt.RemoveImage(ctx, r.GetImage()))
}

func (s *service) ImageFsInfo(
	ctx context.Context, _ *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	return answer(s.rt.ImageFsInfo(ctx))
}

// GetContainerEvents sends the runtime's events until either side ends the stream.
func (s *service) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	events, err := s.rt.Events(stream.Context())
	if err != nil {
		return errgrpc.ToGRPC(err)
	}
	for e := range events {
		if err := stream.Send(message(e)); err != nil {
			return err
		}
	}
	return nil
}

// message returns an event in the CRI's form.
func message(e cri.Event) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{
		ContainerId: e.ID, ContainerEventType: runtimeapi.ContainerEventType(e.Type), CreatedAt: e.Time.UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: e.PodUID}},
	}
}
