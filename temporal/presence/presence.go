// Package presence learns from Temporal which queues are polled: the heartbeats of workers are Temporal's own.
package presence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/release/party"
)

// Finder asks the Temporal server about one namespace.
type Finder struct {
	Temporal  client.Client
	Namespace string
}

// callTimeout is how long asking may take.
const callTimeout = 3 * time.Second

// workersPage is how many workers are asked for at once.
const workersPage = 500

// errNoHeartbeats says that Temporal keeps no heartbeats of workers, so that their absence says nothing.
var errNoHeartbeats = errors.New("this Temporal server does not keep workers' heartbeats")

// Of says of each queue who polls it. Nobody waits for it in vain: what cannot be learnt is unknown.
func (f Finder) Of(ctx context.Context, queues ...string) map[string]party.Presence {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	heard, unheard := f.heartbeats(ctx, queues)
	nobody := func(queue string) bool { return len(heard[queue]) == 0 }
	var silence error
	if unheard == nil && slices.ContainsFunc(queues, nobody) {
		silence = f.keepsHeartbeats(ctx)
	}
	found := make(map[string]party.Presence, len(queues))
	for _, queue := range queues {
		unknown := unheard
		if nobody(queue) {
			unknown = cmp.Or(unheard, silence)
		}
		if unknown != nil {
			found[queue] = party.UnknownPresence(fmt.Sprintf("whether a worker polls queue %s is unknown: %s", queue, whyUnknown(unknown)))
			continue
		}
		found[queue] = party.Judge(queue, heard[queue], time.Now())
	}
	return found
}

func whyUnknown(err error) string {
	var unimplemented *serviceerror.Unimplemented
	if errors.As(err, &unimplemented) {
		err = errNoHeartbeats
	}
	return err.Error()
}

// heartbeats are the last heartbeats of the workers of these queues, by queue.
func (f Finder) heartbeats(ctx context.Context, queues []string) (map[string][]party.Worker, error) {
	heard := map[string][]party.Worker{}
	for token, more := []byte(nil), len(queues) > 0; more; more = len(token) > 0 {
		page, err := f.Temporal.WorkflowService().ListWorkers(ctx, &workflowservice.ListWorkersRequest{
			Namespace: f.Namespace, PageSize: workersPage, NextPageToken: token, Query: workersQuery(queues)})
		if err != nil {
			return nil, err
		}
		infos := page.GetWorkersInfo() //nolint:staticcheck // what is to take its place does not say when the worker was last heard of
		if len(infos) == 0 && len(page.GetWorkers()) > 0 {
			return nil, errNoHeartbeats
		}
		for _, info := range infos {
			heartbeat := info.GetWorkerHeartbeat()
			heard[heartbeat.GetTaskQueue()] = append(heard[heartbeat.GetTaskQueue()], workerOf(heartbeat))
		}
		token = page.GetNextPageToken()
	}
	return heard, nil
}

func workersQuery(queues []string) string {
	conditions := make([]string, len(queues))
	for i, queue := range queues {
		conditions[i] = fmt.Sprintf("TaskQueue = %q", queue)
	}
	return strings.Join(conditions, " OR ")
}

func workerOf(heartbeat *workerpb.WorkerHeartbeat) party.Worker {
	status := heartbeat.GetStatus()
	return party.Worker{Identity: heartbeat.GetWorkerIdentity(), Host: heartbeat.GetHostInfo().GetHostName(), Build: heartbeat.GetDeploymentVersion().GetBuildId(),
		StartedAt: heartbeat.GetStartTime().AsTime(), LastSeenAt: heartbeat.GetHeartbeatTime().AsTime(),
		Stopping: status == enumspb.WORKER_STATUS_SHUTTING_DOWN || status == enumspb.WORKER_STATUS_SHUTDOWN}
}

// keepsHeartbeats is nil when Temporal takes heartbeats, so that a queue without any has no worker.
func (f Finder) keepsHeartbeats(ctx context.Context) error {
	described, err := f.Temporal.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: f.Namespace})
	if err != nil {
		return err
	}
	if !described.GetNamespaceInfo().GetCapabilities().GetWorkerHeartbeats() {
		return errNoHeartbeats
	}
	return nil
}
