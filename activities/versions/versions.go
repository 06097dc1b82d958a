// Package versions reads what an operation on a serving was started with, from the first event of its workflow (release/serving, Input):
// versions travel through history once, however many parties there are.
package versions

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/lru"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

// How many inputs are kept: as many small ones as operations may be under way at once, and some of those that take more than small bytes of memory.
const (
	mostSmall, mostLarge = 1024, 64
	small                = 8 << 10
)

// Reader reads inputs; they never change, so that each is read once. It is safe for concurrent use.
type Reader struct {
	temporal  client.Client
	namespace string
	// small and large are what is known of inputs, by their sizes.
	small, large *lru.Cache
	// reading is what is being read: parties begin at the same time.
	reading singleflight.Group
}

// NewReader reads from a Temporal namespace.
func NewReader(temporal client.Client, namespace string) *Reader {
	return &Reader{temporal: temporal, namespace: namespace, small: lru.New(mostSmall), large: lru.New(mostLarge)}
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
	if in, known := r.known(key); known {
		return in, nil
	}
	// Whoever asked first may go away: the others wait for the same answer.
	answer := r.reading.DoChan(key.WorkflowID+"/"+key.RunID, func() (any, error) {
		if in, known := r.known(key); known { // since it was looked for
			return in, nil
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		in, err := r.read(call, key)
		if err == nil {
			r.keep(key, in)
		}
		return in, err
	})
	select {
	case <-ctx.Done():
		return serving.Input{}, fmt.Errorf("ask Temporal what %s was started with: %s", key.WorkflowID, ctx.Err().Error())
	case got := <-answer:
		return got.Val.(serving.Input), got.Err
	}
}

func (r *Reader) known(key serving.Source) (in serving.Input, known bool) {
	found, known := r.small.Get(key)
	if !known {
		found, known = r.large.Get(key)
	}
	if !known {
		return in, false
	}
	return found.(serving.Input), true
}

func (r *Reader) keep(key serving.Source, in serving.Input) {
	kept := r.small
	if len(in.Target)+len(in.Previous) > small {
		kept = r.large
	}
	kept.Add(key, in)
}

// patience is how long Temporal may take to answer.
const patience = 10 * time.Second

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
