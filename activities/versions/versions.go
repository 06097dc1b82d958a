// Package versions reads what an operation on a serving was started with, from the first event of its workflow (release/serving, Input):
// versions travel through history once, however many parties there are.
package versions

import (
	"context"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"k8s.io/utils/lru"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

// most is how many inputs are kept.
const most = 64

// Reader reads inputs; they never change, so that each is read once. It is safe for concurrent use.
type Reader struct {
	temporal  client.Client
	namespace string
	known     *lru.Cache
}

// NewReader reads from a Temporal namespace.
func NewReader(temporal client.Client, namespace string) *Reader {
	return &Reader{temporal: temporal, namespace: namespace, known: lru.New(most)}
}

// Packed is the packed version that a source leads to, and its digest.
func (r *Reader) Packed(ctx context.Context, source serving.Source) (packed []byte, digest string, err error) {
	in, err := r.Input(ctx, source)
	if err != nil {
		return nil, "", err
	}
	if source.Previous {
		return in.Previous, in.PreviousDigest, nil
	}
	return in.Target, in.TargetDigest, nil
}

// Version is the version that a source leads to.
func (r *Reader) Version(ctx context.Context, source serving.Source) (serving.Version, error) {
	packed, _, err := r.Packed(ctx, source)
	if err != nil {
		return serving.Version{}, err
	}
	v, err := serving.Unpack(packed)
	if err != nil {
		return serving.Version{}, failure.New(failure.Refused, "%s: %v", source.WorkflowID, err)
	}
	return v, nil
}

// Input is what the operation that a source names was started with.
func (r *Reader) Input(ctx context.Context, source serving.Source) (serving.Input, error) {
	key := serving.Source{WorkflowID: source.WorkflowID, RunID: source.RunID}
	if in, known := r.known.Get(key); known {
		return in.(serving.Input), nil
	}
	in, err := r.read(ctx, key)
	if err == nil {
		r.known.Add(key, in)
	}
	return in, err
}

func (r *Reader) read(ctx context.Context, key serving.Source) (serving.Input, error) {
	var in serving.Input
	page, err := r.temporal.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: r.namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: key.WorkflowID, RunId: key.RunID}, MaximumPageSize: 1})
	var gone *serviceerror.NotFound
	switch {
	case errors.As(err, &gone):
		return in, failure.New(failure.NotFound, "Temporal does not know %s (run %s) any more, and so not what it was to bring about",
			key.WorkflowID, key.RunID)
	case err != nil:
		// Not wrapped: an error of Temporal must not be taken for one of a cluster.
		return in, fmt.Errorf("ask Temporal what %s was started with: %s", key.WorkflowID, err.Error())
	case len(page.GetHistory().GetEvents()) == 0:
		return in, fmt.Errorf("ask Temporal what %s was started with: its history has no event", key.WorkflowID)
	}
	payloads := page.GetHistory().GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetInput()
	if err := converter.GetDefaultDataConverter().FromPayloads(payloads, &in); err != nil {
		return in, failure.New(failure.Refused, "what %s was started with cannot be read: %v", key.WorkflowID, err)
	}
	return in, nil
}
