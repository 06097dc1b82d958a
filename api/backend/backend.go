// Package backend is what all handlers of the HTTP API use: the home cluster, and Temporal with the calls that several
// handlers share.
package backend

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/gather"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/temporal/presence"
	"slipway.io/slipway/workflows"
)

// Backend holds the dependencies and settings of the handlers.
type Backend struct {
	// Home is the store of the engine's home cluster.
	Home *store.Store
	// Temporal is the client of the Temporal service that runs the releases; Namespace is its namespace ("": default).
	Temporal  client.Client
	Namespace string
	// TemporalUI is the address of the Temporal UI, "http://host:port"; "": releases have no link to it.
	TemporalUI string
	Log        *slog.Logger
	// MaxConcurrent is the maximum number of services of a task that are released at the same time (0: 50).
	MaxConcurrent int
	// MaxConcurrentWorkloads is the maximum number of workloads of a service that a PARALLEL release changes at the
	// same time (0: 100).
	MaxConcurrentWorkloads int
	// UnreachableBudget is how long a cluster may be unreachable before a release is interrupted (0: 120 s).
	UnreachableBudget time.Duration
	// Recent caches responses for a fraction of a second, Lists caches results of Temporal's lists; nil: nothing is
	// cached.
	Recent, Lists *recent.Cache
	// Checks batches the rollout checks of each party; nil: each is sent separately.
	Checks *gather.Batcher[workflows.RolloutPreflight, workflows.PreflightOutcome]
	// OtherController reports another controller that acts on the same Rollout objects; nil: not checked.
	OtherController func(context.Context) (reference.OtherController, error)
}

// BudgetSeconds is UnreachableBudget in seconds, the unit of workflow inputs.
func (b *Backend) BudgetSeconds() int64 { return int64(b.UnreachableBudget / time.Second) }

// Presence returns, for each queue, which workers poll it.
func (h *Backend) Presence(ctx context.Context, queues ...string) map[string]party.Presence {
	return presence.Finder{Temporal: h.Temporal, Namespace: h.Namespace}.Of(ctx,
		slices.Compact(slices.Sorted(slices.Values(queues)))...)
}

// QueueOf returns the task queue of a party; unknown is the reason if the party does not exist, or
// can't be used.
func (h *Backend) QueueOf(ctx context.Context, party string) (queue, unknown string, err error) {
	queue, known, err := h.Home.Queue(ctx, party)
	if failure.Is(err, failure.Refused) {
		return "", err.Error(), nil
	}
	if err == nil && !known {
		unknown = "party " + party + " is not known: create a Party object of that name in the engine's namespace, or " +
			"a namespace of that name in the home cluster"
	}
	return queue, unknown, err
}

// UnreachableParty is a party whose worker did not answer, its queue and the reason.
type UnreachableParty struct{ Name, Queue, Reason string }

// Unreachable refuses a release because parties did not answer: with one problem for each, and with what is known about
// its workers. refusal begins the error: "plan shop was not executed".
func (h *Backend) Unreachable(ctx context.Context, refusal string, absent ...UnreachableParty) error {
	var queues []string
	for _, one := range absent {
		queues = append(queues, one.Queue)
	}
	known := h.Presence(ctx, queues...)
	problems := make([]schema.FieldProblem, len(absent))
	for i, one := range absent {
		problems[i] = schema.FieldProblem{Field: "party " + one.Name, Reason: one.Reason}
		if found := known[one.Queue]; found.Reachable != party.Unknown {
			problems[i].Reason += "; " + found.Reason
		}
	}
	return problem.Unreachable.Because("%s: %s cannot be reached (%s); nothing was changed", refusal, problems[0].Field,
		problems[0].Reason).Listing(problems)
}

// Snapshot is a release as read at one moment; V is its representation in responses.
type Snapshot[V any] struct {
	Value V
	// Open is true while the release's workflow runs, so that the release can still change.
	Open bool
	// Starting is true while the release's workflow does not run yet.
	Starting bool
	// Unanswered is the reason why the release's workflow did not answer, so that parts of the snapshot may be
	// outdated; "" if it answered.
	Unanswered string
}

// Reader reads a release of one kind.
type Reader[V any] interface {
	// Record reads the complete record of the release.
	Record(ctx context.Context) (*v1alpha1.ReleaseRecord, error)
	// Running queries the workflow of a release that runs.
	Running(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse) (V, error)
	// Outline returns a release as its record alone describes it, before its first step. Unanswered completes it, if
	// its worker does not answer, with what Temporal itself has of the workflow.
	Outline(record *v1alpha1.ReleaseRecord) (V, error)
	Unanswered(outline *V, described *workflowservice.DescribeWorkflowExecutionResponse)
	// Complete reads a release that has ended.
	Complete(record *v1alpha1.ReleaseRecord) (V, error)
	// Lost reads a release without a recorded outcome whose workflow does not run: it is being started, was never
	// started, or was terminated. described is nil if Temporal has no such workflow.
	Lost(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse,
		record *v1alpha1.ReleaseRecord) (Snapshot[V], error)
}

// Read reads the current state of a release: from its workflow while that runs, afterwards from its record. While
// Temporal is unavailable it reads only releases with a recorded outcome.
func Read[V any](ctx context.Context, h *Backend, workflowID string, r Reader[V]) (seen Snapshot[V], err error) {
	described, unavailable := h.Describe(ctx, workflowID)
	if unavailable == nil && execution.IsOpen(described) {
		return readOpen(ctx, described, r)
	}
	record, err := r.Record(ctx)
	switch {
	case problem.IsNotFound(err):
		return seen, err
	case unavailable != nil && (err != nil || record.Outcome == nil):
		return seen, unavailable
	case err != nil:
		return seen, err
	case record.Outcome != nil:
		seen.Value, err = r.Complete(record)
		return seen, err
	}
	return r.Lost(ctx, described, record)
}

// readOpen reads a release whose workflow runs. If no worker answers, it falls back to Temporal's own data and the
// record.
func readOpen[V any](ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse,
	r Reader[V]) (seen Snapshot[V], err error) {
	value, unanswered := r.Running(ctx, described)
	if unanswered == nil {
		return Snapshot[V]{Value: value, Open: true}, nil
	}
	record, err := r.Record(ctx)
	if err != nil {
		return seen, err
	}
	if value, err = r.Outline(record); err != nil {
		return seen, err
	}
	r.Unanswered(&value, described)
	return Snapshot[V]{Value: value, Open: true, Unanswered: unanswered.Error()}, nil
}

// Decode decodes a body of a record.
func Decode[T any](record *v1alpha1.ReleaseRecord, body []byte) (value T, err error) {
	if err = v1alpha1.DecodeBody(body, &value); err != nil {
		err = fmt.Errorf("record %s: %w", record.Name, err)
	}
	return value, err
}

// Memory remembers what a workflow last answered.
type Memory[V any] struct {
	runID  string
	length int64
	value  V
}

// IsCurrent reports whether the workflow has the remembered run and history length.
func (m *Memory[V]) IsCurrent(info *workflowpb.WorkflowExecutionInfo) bool {
	return info.GetExecution().GetRunId() == m.runID && info.GetHistoryLength() == m.length
}

// Query returns the state that a workflow reports. It queries the workflow only if it is not current; after an error it
// still returns what it remembers.
func (m *Memory[V]) Query(ctx context.Context, h *Backend, workflowID string,
	info *workflowpb.WorkflowExecutionInfo) (V, error) {
	if !m.IsCurrent(info) {
		var value V
		if err := h.Query(ctx, workflowID, "", &value); err != nil {
			return m.value, err
		}
		m.runID, m.length, m.value = info.GetExecution().GetRunId(), info.GetHistoryLength(), value
	}
	return m.value, nil
}

// AbnormalEnd describes how a workflow ended that did not complete.
func AbnormalEnd(status enumspb.WorkflowExecutionStatus) string {
	switch status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return "was terminated"
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return "ran out of time"
	default:
		return "ended without a result"
	}
}

// visibilityPage is the page size of Temporal's list calls.
const visibilityPage = 500

// listMaxAge and listMaxStale are the maximum ages of a cached list of open workflows: before it is read again, and
// while it is being read. Temporal's lists lag behind by about as much, and a Temporal server allows only 10 list calls
// a second per namespace by default (frontend.namespaceRPS.visibility).
const listMaxAge, listMaxStale = 700 * time.Millisecond, 800 * time.Millisecond

// OpenWorkflows are the open workflows that match a query. Running lists them once, on first use.
type OpenWorkflows struct {
	*Backend
	Query string
	found map[string]*workflowpb.WorkflowExecutionInfo
}

// OpenOf returns the open releases of a kind.
func (h *Backend) OpenOf(kinds ...string) *OpenWorkflows {
	return &OpenWorkflows{Backend: h,
		Query: fmt.Sprintf("%s IN ('%s')", workflows.AttributeKind.GetName(), strings.Join(kinds, "', '"))}
}

// Running returns the info of an open workflow; nil if it is closed or does not exist. Because the lists lag behind, a
// workflow missing from them is looked up by its ID.
func (o *OpenWorkflows) Running(ctx context.Context, workflowID string) (*workflowpb.WorkflowExecutionInfo, error) {
	if o.found == nil {
		var err error
		if o.found, err = recent.GetStale(ctx, o.Lists, o.Query, listMaxAge, listMaxStale, o.List); err != nil {
			return nil, err
		}
	}
	if info := o.found[workflowID]; info != nil {
		return info, nil
	}
	described, err := o.Describe(ctx, workflowID)
	if err != nil || !execution.IsOpen(described) {
		return nil, err
	}
	return described.GetWorkflowExecutionInfo(), nil
}

// List lists the workflows without the cache, page by page.
func (o *OpenWorkflows) List(ctx context.Context) (map[string]*workflowpb.WorkflowExecutionInfo, error) {
	found := map[string]*workflowpb.WorkflowExecutionInfo{}
	for token := []byte(nil); ; {
		page, err := o.page(ctx, token)
		if err != nil {
			return nil, err
		}
		for _, info := range page.GetExecutions() {
			found[info.GetExecution().GetWorkflowId()] = info
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			return found, nil
		}
	}
}

func (o *OpenWorkflows) page(ctx context.Context, token []byte) (*workflowservice.ListWorkflowExecutionsResponse,
	error) {
	ctx, cancel := WithCallTimeout(ctx)
	defer cancel()
	found, err := o.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: o.Namespace,
		Query: o.Query + " AND ExecutionStatus = 'Running'", PageSize: visibilityPage, NextPageToken: token})
	return found, preferRateLimit(ctx, err)
}
