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

// fakeTemporal is a Temporal server, as far as it knows of builds: who polls, and which build gets the work of each queue.
type fakeTemporal struct {
	workflowservice.WorkflowServiceClient

	mu      sync.Mutex
	workers []*workerpb.WorkerHeartbeat
	current map[string]string
	first   map[string]time.Time
	// starts are when processes started that take the identity of one before.
	starts map[string]time.Time
	// away says that it doesn't tell who polls.
	away bool
}

func newTemporal() *fakeTemporal {
	return &fakeTemporal{current: map[string]string{}, first: map[string]time.Time{}, starts: map[string]time.Time{}}
}

// fakeClient is a client of it.
type fakeClient struct {
	client.Client
	service *fakeTemporal
}

func (c fakeClient) WorkflowService() workflowservice.WorkflowServiceClient { return c.service }

// hear has a worker of a build tell that it polls these queues.
func (s *fakeTemporal) hear(identity, build string, queues ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first[build].IsZero() {
		s.first[build] = time.Now()
	}
	for _, queue := range queues {
		s.workers = append(s.workers, &workerpb.WorkerHeartbeat{WorkerIdentity: identity, TaskQueue: queue, Status: enumspb.WORKER_STATUS_RUNNING,
			DeploymentVersion: &deploymentpb.WorkerDeploymentVersion{BuildId: build}, HeartbeatTime: timestamppb.Now(), StartTime: timestamppb.New(s.starts[identity])})
	}
}

// last is the newest heartbeat of each worker and queue.
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

func (s *fakeTemporal) ListWorkers(context.Context, *workflowservice.ListWorkersRequest, ...grpc.CallOption) (*workflowservice.ListWorkersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, serviceerror.NewUnavailable("away")
	}
	return &workflowservice.ListWorkersResponse{WorkersInfo: s.last()}, nil //nolint:staticcheck // as presence.Finder reads it
}

func (s *fakeTemporal) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest, ...grpc.CallOption) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{NamespaceInfo: &namespacepb.NamespaceInfo{
		Capabilities: &namespacepb.NamespaceInfo_Capabilities{WorkerHeartbeats: true}}}, nil
}

func (s *fakeTemporal) DescribeWorkerDeployment(_ context.Context, in *workflowservice.DescribeWorkerDeploymentRequest, _ ...grpc.CallOption) (
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
			info.VersionSummaries = append(info.VersionSummaries, &deploymentpb.WorkerDeploymentInfo_WorkerDeploymentVersionSummary{
				DeploymentVersion: &deploymentpb.WorkerDeploymentVersion{BuildId: id}, CreateTime: timestamppb.New(first)})
		}
	}
	return &workflowservice.DescribeWorkerDeploymentResponse{WorkerDeploymentInfo: info}, nil
}

func (s *fakeTemporal) SetWorkerDeploymentCurrentVersion(_ context.Context, in *workflowservice.SetWorkerDeploymentCurrentVersionRequest, _ ...grpc.CallOption) (
	*workflowservice.SetWorkerDeploymentCurrentVersionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current[in.GetDeploymentName()] = in.GetBuildId()
	return &workflowservice.SetWorkerDeploymentCurrentVersionResponse{}, nil
}

// of are the builds as a process of one sees them, on two queues.
func (s *fakeTemporal) of(identity, build string) *builds {
	return newBuilds(fakeClient{service: s}, []Queue{{Name: "a"}, {Name: "b"}}, Options{Identity: identity, Versioning: Versioning{Build: build}, Log: slog.New(slog.DiscardHandler)})
}

// oneBuild is a build that has had the work of both queues for a second; beat has its worker tell that it polls.
func oneBuild(t *testing.T) (s *fakeTemporal, older *builds, beat func()) {
	t.Helper()
	s = newTemporal()
	older = s.of("old", "older")
	beat = func() { s.hear("old", "older", "a", "b") }
	beat()
	require.NoError(t, older.look(t.Context()))
	require.Equal(t, map[string]string{"a": "older", "b": "older"}, s.current)
	time.Sleep(time.Second)
	return s, older, beat
}

// A newer build takes the work and dies before both of its queues have been heard of: the older one takes it back all the same, though the same builds run then as
// when it last decided.
func TestABuildThatWasHardlyHeardOfLosesTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, older, beat := oneBuild(t)
		s.hear("new", "newer", "a")
		s.current = map[string]string{"a": "newer", "b": "newer"}
		for at := party.Interval; at < decideEvery-party.Interval; at += party.Interval {
			time.Sleep(party.Interval)
			beat()
			if at > missingFor { // a process looks every lookEvery
				_ = older.look(t.Context()) // the newer one may only not have been heard of
			}
		}
		require.Equal(t, map[string]string{"a": "older", "b": "older"}, s.current)
	})
}

// It dies before either has.
func TestABuildThatWasNeverHeardOfLosesTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, older, beat := oneBuild(t)
		s.first["newer"] = time.Now()
		s.current = map[string]string{"a": "newer", "b": "newer"}
		for range 24 { // two minutes
			time.Sleep(party.Interval)
			beat()
			_ = older.look(t.Context())
		}
		require.Equal(t, map[string]string{"a": "older", "b": "older"}, s.current)
	})
}

// The last worker of a build that ends hands the work over, though another one of it, which has just died, still counts as there; one that lives keeps it.
func TestTheLastWorkerOfABuildEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// other is what becomes of the other worker of its build just after this one has been asked to end.
		other func(s *fakeTemporal)
		gets  string
		most  time.Duration
	}{
		"it has died": {func(*fakeTemporal) {}, "", heardAgain + leaveTimeout},
		"it lives":    {func(s *fakeTemporal) { s.hear("other", "newer", "a", "b") }, "newer", party.Interval + routePause},
		"it was started again under its own identity": {func(s *fakeTemporal) {
			s.starts["other"] = time.Now()
			s.hear("other", "newer", "a", "b")
		}, "newer", heardAgain + leaveTimeout},
		"it lives, and Temporal doesn't tell for a moment": {func(s *fakeTemporal) {
			s.tells(false)
			time.AfterFunc(time.Second, func() {
				s.tells(true)
				s.hear("other", "newer", "a", "b")
			})
		}, "newer", heardAgain + leaveTimeout},
		"it has died, and Temporal doesn't tell for a moment": {func(s *fakeTemporal) {
			s.tells(false)
			time.AfterFunc(time.Second, func() { s.tells(true) })
		}, "", heardAgain + leaveTimeout},
		"nobody knows, since Temporal doesn't tell until the end": {func(s *fakeTemporal) { s.tells(false) }, "newer", heardAgain + leaveTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTemporal()
				s.hear("before", "", "a") // on its other queue it is heard of later
				time.Sleep(time.Second)
				s.hear("other", "newer", "a", "b")
				s.hear("ends", "newer", "a", "b")
				s.current = map[string]string{"a": "newer", "b": "newer"}
				ends := s.of("ends", "newer")
				time.AfterFunc(party.Interval-time.Second, func() { s.hear("before", "", "a", "b") })
				time.AfterFunc(party.Interval, func() { test.other(s) })
				begun := time.Now()
				dead := ends.awaitOthers(t.Context())
				require.LessOrEqual(t, time.Since(begun), test.most)
				s.tells(true)
				ends.leave(t.Context(), dead...)
				require.Equal(t, map[string]string{"a": test.gets, "b": test.gets}, s.current)
				time.Sleep(time.Minute) // what is still to come of the others
			})
		})
	}
}

// While Temporal can't say who polls, every build that ever ran would count as running: a build that was gone back from, say.
func TestNobodyTakesTheWorkWhileTemporalDoesNotTell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTemporal()
		older := s.of("old", "older")
		s.hear("old", "older", "a", "b")
		s.first["newer"] = time.Now().Add(time.Second) // it has been, and is gone
		s.current = map[string]string{"a": "older", "b": "older"}
		require.NoError(t, older.look(t.Context()))
		s.tells(false)
		require.ErrorContains(t, older.look(t.Context()), "is unknown")
		older.leave(t.Context())
		require.Equal(t, map[string]string{"a": "older", "b": "older"}, s.current)
	})
}

// tells says whether it tells who polls.
func (s *fakeTemporal) tells(does bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = !does
}
