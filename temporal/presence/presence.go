// Package presence finds out from Temporal which queues are polled, by the heartbeats that the SDK's workers send.
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

// callTimeout bounds one query.
const callTimeout = 3 * time.Second

// workersPage is the page size of a list of workers.
const workersPage = 500

// errNoHeartbeats means that Temporal keeps no workers' heartbeats, so that their absence means nothing.
var errNoHeartbeats = errors.New("this Temporal server does not keep workers' heartbeats")

// Of returns which workers poll each queue. It never waits longer than callTimeout: what cannot be found out is
// unknown.
func (f Finder) Of(ctx context.Context, queues ...string) map[string]party.Presence {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	workers, listErr := f.heartbeats(ctx, queues)
	noWorkers := func(queue string) bool { return len(workers[queue]) == 0 }
	var supportErr error
	if listErr == nil && slices.ContainsFunc(queues, noWorkers) {
		supportErr = f.keepsHeartbeats(ctx)
	}
	found := make(map[string]party.Presence, len(queues))
	for _, queue := range queues {
		unknown := listErr
		if noWorkers(queue) {
			unknown = cmp.Or(listErr, supportErr)
		}
		if unknown != nil {
			found[queue] = party.UnknownPresence(fmt.Sprintf("whether a worker polls queue %s is unknown: %s", queue,
				whyUnknown(unknown)))
			continue
		}
		found[queue] = party.PresenceOf(queue, workers[queue], time.Now())
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

// heartbeats returns the last heartbeats of the workers of these queues, by queue.
func (f Finder) heartbeats(ctx context.Context, queues []string) (map[string][]party.Worker, error) {
	workers := map[string][]party.Worker{}
	for token, more := []byte(nil), len(queues) > 0; more; more = len(token) > 0 {
		page, err := f.Temporal.WorkflowService().ListWorkers(ctx, &workflowservice.ListWorkersRequest{
			Namespace: f.Namespace, PageSize: workersPage, NextPageToken: token, Query: workersQuery(queues)})
		if err != nil {
			return nil, err
		}
		//nolint:staticcheck // its replacement does not contain the time of the last heartbeat
		infos := page.GetWorkersInfo()
		if len(infos) == 0 && len(page.GetWorkers()) > 0 {
			return nil, errNoHeartbeats
		}
		for _, info := range infos {
			heartbeat := info.GetWorkerHeartbeat()
			workers[heartbeat.GetTaskQueue()] = append(workers[heartbeat.GetTaskQueue()], workerOf(heartbeat))
		}
		token = page.GetNextPageToken()
	}
	return workers, nil
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
	return party.Worker{Identity: heartbeat.GetWorkerIdentity(), Host: heartbeat.GetHostInfo().GetHostName(),
		Build: heartbeat.GetDeploymentVersion().GetBuildId(), Policy: reported(heartbeat, policyPrefix),
		Account:   party.ParseAccount(reported(heartbeat, accountPrefix)),
		StartedAt: heartbeat.GetStartTime().AsTime(), LastSeenAt: heartbeat.GetHeartbeatTime().AsTime(),
		Stopping: status == enumspb.WORKER_STATUS_SHUTTING_DOWN || status == enumspb.WORKER_STATUS_SHUTDOWN}
}

// policyPrefix begins the name of the plugin by which a worker reports its policy, accountPrefix that of its account:
// the names of a worker's plugins are what its heartbeats contain of its own.
const policyPrefix, accountPrefix = "slipway.io/policy=", "slipway.io/account="

// PolicyPlugin returns the name of the plugin by which a worker reports its party's policy.
func PolicyPlugin(policy string) string { return policyPrefix + policy }

// AccountPlugin returns the name of the plugin by which a worker reports its account.
func AccountPlugin(account party.Account) string { return accountPrefix + account.String() }

// reported returns what a worker reports by a plugin whose name begins with a prefix, "" if it reports nothing.
func reported(heartbeat *workerpb.WorkerHeartbeat, prefix string) string {
	for _, plugin := range heartbeat.GetPlugins() {
		if text, is := strings.CutPrefix(plugin.GetName(), prefix); is {
			return text
		}
	}
	return ""
}

// keepsHeartbeats returns nil if Temporal accepts heartbeats, so that a queue without any has no worker.
func (f Finder) keepsHeartbeats(ctx context.Context) error {
	described, err := f.Temporal.WorkflowService().DescribeNamespace(ctx,
		&workflowservice.DescribeNamespaceRequest{Namespace: f.Namespace})
	if err != nil {
		return err
	}
	if !described.GetNamespaceInfo().GetCapabilities().GetWorkerHeartbeats() {
		return errNoHeartbeats
	}
	return nil
}
