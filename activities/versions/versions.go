// Package versions reads the input of a serving operation from the first event of its workflow (release/serving,
// Input). So versions are in the history once, however many parties there are.
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

// maxSmall and maxLarge are how many inputs are cached: as many small ones as operations may run at once, and some
// larger than smallBytes.
const (
	maxSmall, maxLarge = 1024, 64
	smallBytes         = 8 << 10
)

// Reader reads inputs and caches them, since they never change. It is safe for concurrent use.
type Reader struct {
	temporal  client.Client
	namespace string
	// small and large cache inputs by their size.
	small, large *lru.Cache
	// inFlight merges concurrent reads of one input: the parties of an operation start at the same time.
	inFlight singleflight.Group
}

// NewReader returns a reader for a Temporal namespace.
func NewReader(temporal client.Client, namespace string) *Reader {
	return &Reader{temporal: temporal, namespace: namespace, small: lru.New(maxSmall), large: lru.New(maxLarge)}
}

// Packed returns the packed version that a source refers to, and its digest.
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

// Version returns the version that a source refers to.
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

// Input returns the input of the operation that a source names.
func (r *Reader) Input(ctx context.Context, source serving.Source) (serving.Input, error) {
	key := serving.Source{WorkflowID: source.WorkflowID, RunID: source.RunID}
	if in, known := r.cached(key); known {
		return in, nil
	}
	// The first caller may be cancelled: the others wait for the same read.
	answer := r.inFlight.DoChan(key.WorkflowID+"/"+key.RunID, func() (any, error) {
		if in, known := r.cached(key); known { // read since the first check
			return in, nil
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		in, err := r.read(call, key)
		if err == nil {
			r.keep(key, in)
		}
		return in, err
	})
	select {
	case <-ctx.Done():
		return serving.Input{}, fmt.Errorf("read the input of %s from Temporal: %s", key.WorkflowID, ctx.Err().Error())
	case got := <-answer:
		return got.Val.(serving.Input), got.Err
	}
}

func (r *Reader) cached(key serving.Source) (in serving.Input, known bool) {
	for _, kept := range []*lru.Cache{r.small, r.large} {
		if found, known := kept.Get(key); known {
			return found.(serving.Input), true
		}
	}
	return in, false
}

func (r *Reader) keep(key serving.Source, in serving.Input) {
	kept := r.small
	if len(in.Target)+len(in.Previous) > smallBytes {
		kept = r.large
	}
	kept.Add(key, in)
}

// requestTimeout limits a request to Temporal.
const requestTimeout = 10 * time.Second

func (r *Reader) read(ctx context.Context, key serving.Source) (serving.Input, error) {
	var in serving.Input
	page, err := r.temporal.WorkflowService().GetWorkflowExecutionHistory(ctx,
		&workflowservice.GetWorkflowExecutionHistoryRequest{Namespace: r.namespace,
			Execution: &commonpb.WorkflowExecution{WorkflowId: key.WorkflowID, RunId: key.RunID}, MaximumPageSize: 1})
	var notFound *serviceerror.NotFound
	switch {
	case errors.As(err, &notFound):
		return in, failure.New(failure.NotFound, "Temporal no longer has %s (run %s), so its input is unknown",
			key.WorkflowID, key.RunID)
	case err != nil:
		// Not wrapped: an error of Temporal must not be mistaken for one of a cluster.
		return in, fmt.Errorf("read the input of %s from Temporal: %s", key.WorkflowID, err.Error())
	case len(page.GetHistory().GetEvents()) == 0:
		return in, fmt.Errorf("read the input of %s from Temporal: its history has no event", key.WorkflowID)
	}
	payloads := page.GetHistory().GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetInput()
	if err := converter.GetDefaultDataConverter().FromPayloads(payloads, &in); err != nil {
		return in, failure.New(failure.Refused, "the input of %s cannot be decoded: %v", key.WorkflowID, err)
	}
	return in, nil
}
