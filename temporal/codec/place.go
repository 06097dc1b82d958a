package codec

import (
	"context"
	"strings"
	"sync"

	commandpb "go.temporal.io/api/command/v1"
	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	querypb "go.temporal.io/api/query/v1"
	updatepb "go.temporal.io/api/update/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"
)

// place is where Temporal keeps a payload. Empty fields are unknown.
type place struct {
	namespace, workflow string
	// command means that the payload belongs to a signal, an Update or a query that a workflow receives.
	command bool
}

type placeKey struct{}

func withPlace(ctx context.Context, at place) context.Context {
	return context.WithValue(ctx, placeKey{}, at)
}

func placeOf(ctx context.Context) place {
	at, _ := ctx.Value(placeKey{}).(place)
	return at
}

// enter returns the context for the payloads of a message of Temporal's API: the workflow that the message names keeps
// them. Messages that name none are parts of one that does.
func enter(ctx context.Context, message proto.Message) (context.Context, error) {
	at := placeOf(ctx)
	outside := at
	switch message.(type) {
	case *historypb.WorkflowExecutionSignaledEventAttributes, *updatepb.Request, *querypb.WorkflowQuery:
		at.command = true
	}
	if id := keeperOf(message); id != "" {
		at.workflow = id
	}
	if at == outside {
		return ctx, nil
	}
	return withPlace(ctx, at), nil
}

// resourcePrefix begins the resource ID of requests about a workflow that they do not name otherwise.
const resourcePrefix = "workflow:"

// keeperOf returns the ID of the workflow that keeps the payloads of a message; "" if the message does not say. A
// child's input and a signal to another workflow are kept by that workflow.
func keeperOf(message any) string {
	var id string
	switch m := message.(type) {
	case *commandpb.Command: // its summary is the child's too
		id = m.GetStartChildWorkflowExecutionCommandAttributes().GetWorkflowId()
	case *historypb.HistoryEvent:
		id = m.GetStartChildWorkflowExecutionInitiatedEventAttributes().GetWorkflowId()
	case interface {
		GetWorkflowExecution() *commonpb.WorkflowExecution
	}:
		id = m.GetWorkflowExecution().GetWorkflowId()
	case interface {
		GetExecution() *commonpb.WorkflowExecution
	}:
		id = m.GetExecution().GetWorkflowId()
	case interface{ GetUpdateRef() *updatepb.UpdateRef }:
		id = m.GetUpdateRef().GetWorkflowExecution().GetWorkflowId()
	case interface{ GetWorkflowId() string }:
		id = m.GetWorkflowId()
	case interface{ GetResourceId() string }:
		if workflow, ok := strings.CutPrefix(m.GetResourceId(), resourcePrefix); ok {
			id = workflow
		}
	}
	return id
}

// queryTasks remembers which workflow a query is for, by the token of its task: the answer does not name it.
type queryTasks struct {
	mu        sync.Mutex
	workflows map[string]string
}

// maxQueryTasks bounds the remembered tasks: those of a query that is never answered are not removed.
const maxQueryTasks = 1000

// receive remembers a task with a query.
func (q *queryTasks) receive(reply any) {
	task, ok := reply.(*workflowservice.PollWorkflowTaskQueueResponse)
	if !ok || task.GetQuery() == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.workflows) >= maxQueryTasks {
		clear(q.workflows)
	}
	q.workflows[string(task.GetTaskToken())] = task.GetWorkflowExecution().GetWorkflowId()
}

// workflowOf returns the workflow that answers a query; "" for other requests.
func (q *queryTasks) workflowOf(request any) string {
	answer, ok := request.(*workflowservice.RespondQueryTaskCompletedRequest)
	if !ok {
		return ""
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.workflows[string(answer.GetTaskToken())]
}

// answered forgets the task of an answered query.
func (q *queryTasks) answered(request any) {
	if answer, ok := request.(*workflowservice.RespondQueryTaskCompletedRequest); ok {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.workflows, string(answer.GetTaskToken()))
	}
}
