package versions_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/mocks"
	"google.golang.org/grpc"

	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/release/serving"
)

// fakeTemporal has the first event of every workflow.
type fakeTemporal struct {
	workflowservice.WorkflowServiceClient
	mu       sync.Mutex
	requests map[string]int
	target   int
	// open releases responses; err is returned instead of a response.
	open chan struct{}
	err  error
}

func (h *fakeTemporal) GetWorkflowExecutionHistory(ctx context.Context,
	in *workflowservice.GetWorkflowExecutionHistoryRequest, _ ...grpc.CallOption) (
	*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	h.mu.Lock()
	h.requests[in.GetExecution().GetRunId()]++
	err := h.err
	h.mu.Unlock()
	select {
	case <-h.open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	input, err := converter.GetDefaultDataConverter().ToPayloads(
		serving.Input{ID: in.GetExecution().GetWorkflowId(), Target: make([]byte, h.target)})
	if err != nil {
		return nil, err
	}
	started := &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
		WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{Input: input}}}
	return &workflowservice.GetWorkflowExecutionHistoryResponse{
		History: &historypb.History{Events: []*historypb.HistoryEvent{started}}}, nil
}

func readerOf(h *fakeTemporal) *versions.Reader {
	h.requests = map[string]int{}
	temporal := &mocks.Client{}
	temporal.On("WorkflowService").Return(h)
	return versions.NewReader(temporal, "default")
}

func source(i int) serving.Source {
	return serving.Source{WorkflowID: fmt.Sprintf("serving/s%d/1", i), RunID: fmt.Sprintf("run-%d", i)}
}

// Two parties that prepare and apply an operation read its input once, even if other inputs are read in between.
func TestInput_IsReadOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason             string
		operations, target int
	}{
		"Burst": {"a burst of operations fits the cache", 500, 100},
		"Large": {"some large inputs are cached, too", 50, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &fakeTemporal{target: c.target, open: make(chan struct{})}
			r := readerOf(h)
			var parties sync.WaitGroup
			for i := range 2 * c.operations {
				parties.Go(func() {
					in, err := r.Input(t.Context(), source(i/2))
					if err != nil {
						t.Error(err)
					}
					assert.Equal(t, source(i/2).WorkflowID, in.ID)
				})
			}
			close(h.open)
			parties.Wait()
			for i := range c.operations {
				_, err := r.Input(t.Context(), source(i))
				require.NoError(t, err)
				require.Equal(t, 1, h.requests[source(i).RunID], c.reason)
			}
		})
	}
}

func TestInput_ErrorIsNotCached(t *testing.T) {
	t.Parallel()
	h := &fakeTemporal{open: make(chan struct{}), err: errors.New("unreachable")}
	close(h.open)
	r := readerOf(h)
	_, err := r.Input(t.Context(), source(1))
	require.ErrorContains(t, err, "read the input of serving/s1/1 from Temporal: unreachable")
	h.err = nil
	_, err = r.Input(t.Context(), source(1))
	require.NoError(t, err)
}

func TestInput_ReadContinues_WhenFirstCallerIsCancelled(t *testing.T) {
	t.Parallel()
	h := &fakeTemporal{open: make(chan struct{})}
	r := readerOf(h)
	first, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := r.Input(first, source(1))
		left <- err
	}()
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.requests[source(1).RunID] == 1
	}, 10*time.Second, time.Millisecond)
	leave()
	require.Error(t, <-left, "a cancelled caller stops waiting")
	second := make(chan error)
	go func() {
		_, err := r.Input(t.Context(), source(1))
		second <- err
	}()
	close(h.open)
	require.NoError(t, <-second, "the read continues for the second caller")
	require.Equal(t, 1, h.requests[source(1).RunID])
}
