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

// histories is a Temporal that knows the first event of every workflow.
type histories struct {
	workflowservice.WorkflowServiceClient
	mu     sync.Mutex
	asked  map[string]int
	target int
	// open lets an answer go; err is what is answered instead.
	open chan struct{}
	err  error
}

func (h *histories) GetWorkflowExecutionHistory(ctx context.Context, in *workflowservice.GetWorkflowExecutionHistoryRequest, _ ...grpc.CallOption) (
	*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	h.mu.Lock()
	h.asked[in.GetExecution().GetRunId()]++
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
	input, err := converter.GetDefaultDataConverter().ToPayloads(serving.Input{ID: in.GetExecution().GetWorkflowId(), Target: make([]byte, h.target)})
	if err != nil {
		return nil, err
	}
	started := &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
		WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{Input: input}}}
	return &workflowservice.GetWorkflowExecutionHistoryResponse{History: &historypb.History{Events: []*historypb.HistoryEvent{started}}}, nil
}

func readerOf(h *histories) *versions.Reader {
	h.asked = map[string]int{}
	temporal := &mocks.Client{}
	temporal.On("WorkflowService").Return(h)
	return versions.NewReader(temporal, "default")
}

func source(i int) serving.Source {
	return serving.Source{WorkflowID: fmt.Sprintf("serving/s%d/1", i), RunID: fmt.Sprintf("run-%d", i)}
}

// Whatever comes in between, two parties that prepare and apply ask Temporal once.
func TestAnInputIsReadOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason             string
		operations, target int
	}{
		"Burst": {"a burst of operations goes round and round", 500, 100},
		"Large": {"some of those that take much memory are kept, too", 50, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &histories{target: c.target, open: make(chan struct{})}
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
				require.Equal(t, 1, h.asked[source(i).RunID], c.reason)
			}
		})
	}
}

func TestAnErrorIsNotKept(t *testing.T) {
	t.Parallel()
	h := &histories{open: make(chan struct{}), err: errors.New("away")}
	close(h.open)
	r := readerOf(h)
	_, err := r.Input(t.Context(), source(1))
	require.ErrorContains(t, err, "ask Temporal what serving/s1/1 was started with: away")
	h.err = nil
	_, err = r.Input(t.Context(), source(1))
	require.NoError(t, err)
}

func TestWhoAskedFirstMayGoAway(t *testing.T) {
	t.Parallel()
	h := &histories{open: make(chan struct{})}
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
		return h.asked[source(1).RunID] == 1
	}, 10*time.Second, time.Millisecond)
	leave()
	require.Error(t, <-left, "who goes away waits no longer")
	second := make(chan error)
	go func() {
		_, err := r.Input(t.Context(), source(1))
		second <- err
	}()
	close(h.open)
	require.NoError(t, <-second, "what was begun for another goes on")
	require.Equal(t, 1, h.asked[source(1).RunID])
}
