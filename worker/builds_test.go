package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	deploymentpb "go.temporal.io/api/deployment/v1"
	enumspb "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/serviceerror"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"slipway.io/slipway/release/party"
)

// fakeTemporal is a Temporal server, reduced to builds: the pollers, and the build that gets the work of each queue.
type fakeTemporal struct {
	workflowservice.WorkflowServiceClient

	mu      sync.Mutex
	workers []*workerpb.WorkerHeartbeat
	current map[string]string
	first   map[string]time.Time
	// starts are the start times of processes that reuse an earlier identity.
	starts map[string]time.Time
	// away is true while the server does not report pollers.
	away bool
}

func newTemporal() *fakeTemporal {
	return &fakeTemporal{current: map[string]string{}, first: map[string]time.Time{}, starts: map[string]time.Time{}}
}

// fakeClient is a client of fakeTemporal.
type fakeClient struct {
	client.Client
	service *fakeTemporal
}

func (c fakeClient) WorkflowService() workflowservice.WorkflowServiceClient { return c.service }

// hear sends a heartbeat of a worker of a build for these queues.
func (s *fakeTemporal) hear(identity, build string, queues ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first[build].IsZero() {
		s.first[build] = time.Now()
	}
	for _, queue := range queues {
		s.workers = append(s.workers, &workerpb.WorkerHeartbeat{WorkerIdentity: identity, TaskQueue: queue,
			Status:            enumspb.WORKER_STATUS_RUNNING,
			DeploymentVersion: &deploymentpb.WorkerDeploymentVersion{BuildId: build}, HeartbeatTime: timestamppb.Now(),
			StartTime: timestamppb.New(s.starts[identity])})
	}
}

// last returns the newest heartbeat of each worker and queue.
func (s *fakeTemporal) last() (infos []*workerpb.WorkerInfo) {
	newest := map[string]*workerpb.WorkerHeartbeat{}
	for _, w := range s.workers {
		newest[fmt.Sprint(w.GetWorkerIdentity(), w.GetStartTime().AsTime(), w.GetTaskQueue())] = w
	}
	for _, w := range newest {
		infos = append(infos, &workerpb.WorkerInfo{WorkerHeartbeat: w})
	}
	return infos
}

func (s *fakeTemporal) ListWorkers(context.Context, *workflowservice.ListWorkersRequest,
	...grpc.CallOption) (*workflowservice.ListWorkersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, serviceerror.NewUnavailable("away")
	}
	//nolint:staticcheck // as presence.Finder reads it
	return &workflowservice.ListWorkersResponse{WorkersInfo: s.last()}, nil
}

func (s *fakeTemporal) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest,
	...grpc.CallOption) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{NamespaceInfo: &namespacepb.NamespaceInfo{
		Capabilities: &namespacepb.NamespaceInfo_Capabilities{WorkerHeartbeats: true}}}, nil
}

func (s *fakeTemporal) DescribeWorkerDeployment(_ context.Context, in *workflowservice.DescribeWorkerDeploymentRequest,
	_ ...grpc.CallOption) (
	*workflowservice.DescribeWorkerDeploymentResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	build, known := s.current[in.GetDeploymentName()]
	if !known {
		return nil, serviceerror.NewNotFound("no such deployment")
	}
	info := &deploymentpb.WorkerDeploymentInfo{RoutingConfig: &deploymentpb.RoutingConfig{}}
	if build != "" {
		info.RoutingConfig.CurrentDeploymentVersion = &deploymentpb.WorkerDeploymentVersion{BuildId: build}
	}
	for id, first := range s.first {
		if id != "" {
			info.VersionSummaries = append(info.VersionSummaries,
				&deploymentpb.WorkerDeploymentInfo_WorkerDeploymentVersionSummary{
					DeploymentVersion: &deploymentpb.WorkerDeploymentVersion{BuildId: id},
					CreateTime:        timestamppb.New(first)})
		}
	}
	return &workflowservice.DescribeWorkerDeploymentResponse{WorkerDeploymentInfo: info}, nil
}

func (s *fakeTemporal) SetWorkerDeploymentCurrentVersion(_ context.Context,
	in *workflowservice.SetWorkerDeploymentCurrentVersionRequest, _ ...grpc.CallOption) (
	*workflowservice.SetWorkerDeploymentCurrentVersionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current[in.GetDeploymentName()] = in.GetBuildId()
	return &workflowservice.SetWorkerDeploymentCurrentVersionResponse{}, nil
}

// of returns the buildRouter of a process with two queues.
func (s *fakeTemporal) of(identity, build string) *buildRouter {
	return newBuildRouter(fakeClient{service: s}, []Queue{{Name: "a"}, {Name: "b"}},
		Options{Identity: identity, Build: build, Log: slog.New(slog.DiscardHandler)})
}

// oneBuild returns a build that has had the work of both queues for a second; beat sends its worker's heartbeat.
func oneBuild(t *testing.T) (s *fakeTemporal, older *buildRouter, beat func()) {
	t.Helper()
	s = newTemporal()
	older = s.of("old", "older")
	beat = func() { s.hear("old", "older", "a", "b") }
	beat()
	require.NoError(t, older.check(t.Context()))
	require.Equal(t, map[string]string{"a": "older", "b": "older"}, s.current)
	time.Sleep(time.Second)
	return s, older, beat
}

// A newer build gets the work and dies before it sent heartbeats for both queues: the older one takes the work back,
// although the same builds run as at its last decision.
func TestBuildLosesWork_WhenItDiesAfterFirstHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, older, beat := oneBuild(t)
		s.hear("new", "newer", "a")
		s.current = map[string]string{"a": "newer", "b": "newer"}
		for at := party.HeartbeatInterval; at < decideInterval-party.HeartbeatInterval; at += party.HeartbeatInterval {
			time.Sleep(party.HeartbeatInterval)
			beat()
			if at > missingThreshold { // a process checks every checkInterval
				_ = older.check(t.Context()) // the newer build's heartbeats may only be delayed
			}
		}
		require.Equal(t, map[string]string{"a": "older", "b": "older"}, s.current)
	})
}

// The newer build dies before its first heartbeat.
func TestBuildLosesWork_WhenItDiesBeforeFirstHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, older, beat := oneBuild(t)
		s.first["newer"] = time.Now()
		s.current = map[string]string{"a": "newer", "b": "newer"}
		for range 24 { // two minutes
			time.Sleep(party.HeartbeatInterval)
			beat()
			_ = older.check(t.Context())
		}
		require.Equal(t, map[string]string{"a": "older", "b": "older"}, s.current)
	})
}

// The last worker of a build hands the work over when it ends, even if another worker of the build that has just died
// is still listed; if the other one lives, the build keeps the work.
func TestLastWorkerOfABuildHandsWorkOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// other is what happens to the build's other worker just after this one is asked to end.
		other func(s *fakeTemporal)
		gets  string
		most  time.Duration
	}{
		"it has died": {func(*fakeTemporal) {}, "", heartbeatWithin + leaveTimeout},
		"it lives": {func(s *fakeTemporal) {
			s.hear("other", "newer", "a", "b")
		}, "newer", party.HeartbeatInterval + routePause},
		"it restarted with the same identity": {func(s *fakeTemporal) {
			s.starts["other"] = time.Now()
			s.hear("other", "newer", "a", "b")
		}, "newer", heartbeatWithin + leaveTimeout},
		"it lives, and Temporal briefly reports no pollers": {func(s *fakeTemporal) {
			s.reportPollers(false)
			time.AfterFunc(time.Second, func() {
				s.reportPollers(true)
				s.hear("other", "newer", "a", "b")
			})
		}, "newer", heartbeatWithin + leaveTimeout},
		"it has died, and Temporal briefly reports no pollers": {func(s *fakeTemporal) {
			s.reportPollers(false)
			time.AfterFunc(time.Second, func() { s.reportPollers(true) })
		}, "", heartbeatWithin + leaveTimeout},
		"it is unknown, as Temporal reports no pollers until the end": {func(s *fakeTemporal) {
			s.reportPollers(false)
		}, "newer", heartbeatWithin + leaveTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTemporal()
				s.hear("before", "", "a") // the heartbeat for its other queue is later
				time.Sleep(time.Second)
				s.hear("other", "newer", "a", "b")
				s.hear("ends", "newer", "a", "b")
				s.current = map[string]string{"a": "newer", "b": "newer"}
				ends := s.of("ends", "newer")
				time.AfterFunc(party.HeartbeatInterval-time.Second, func() { s.hear("before", "", "a", "b") })
				time.AfterFunc(party.HeartbeatInterval, func() { test.other(s) })
				begun := time.Now()
				dead := ends.awaitDeadWorkers(t.Context())
				require.LessOrEqual(t, time.Since(begun), test.most)
				s.reportPollers(true)
				ends.handOver(t.Context(), dead...)
				require.Equal(t, map[string]string{"a": test.gets, "b": test.gets}, s.current)
				time.Sleep(time.Minute) // pending heartbeats of the others
			})
		})
	}
}

// While Temporal cannot report pollers, every build that ever ran would count as running, including one that was rolled
// back.
func TestRoutingIsUnchanged_WhilePollersUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTemporal()
		older := s.of("old", "older")
		s.hear("old", "older", "a", "b")
		s.first["newer"] = time.Now().Add(time.Second) // it ran and has ended
		s.current = map[string]string{"a": "older", "b": "older"}
		require.NoError(t, older.check(t.Context()))
		s.reportPollers(false)
		require.ErrorContains(t, older.check(t.Context()), "is unknown")
		older.handOver(t.Context())
		require.Equal(t, map[string]string{"a": "older", "b": "older"}, s.current)
	})
}

// reportPollers sets whether the server reports pollers.
func (s *fakeTemporal) reportPollers(does bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = !does
}
