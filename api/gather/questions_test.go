package gather_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/gather"
)

// fakeSender records each batch. It returns "answer to" each request when the test sends a value to answer.
type fakeSender struct {
	mu     sync.Mutex
	calls  [][]string
	begun  chan int
	answer chan error
}

func newFakeSender() *fakeSender {
	return &fakeSender{begun: make(chan int, 100), answer: make(chan error)}
}

func (a *fakeSender) send(_ context.Context, questions []string) ([]string, error) {
	a.mu.Lock()
	a.calls = append(a.calls, questions)
	a.mu.Unlock()
	a.begun <- len(questions)
	if err := <-a.answer; err != nil {
		return nil, err
	}
	answers := make([]string, len(questions))
	for i, question := range questions {
		answers[i] = "answer to " + question
	}
	return answers, nil
}

// slowLimits has a MaxDelay that never expires within a test.
var slowLimits = gather.Limits{MaxDelay: time.Hour, BatchSize: 3, BatchBytes: 100, Concurrent: 100, Queued: 1000}

// result is what one caller gets.
type result struct {
	answer string
	err    error
}

// put sends a request in the background.
func put(ctx context.Context, g *gather.Batcher[string, string], a *fakeSender, key, question string,
	bytes int) <-chan result {
	results := make(chan result, 1)
	go func() {
		answer, err := g.Do(ctx, key, question, bytes, a.send)
		results <- result{answer, err}
	}()
	return results
}

func TestBatcher_BatchesRequests_WhileEarlierBatchRuns(t *testing.T) {
	t.Parallel()
	g, a := &gather.Batcher[string, string]{Limits: slowLimits}, newFakeSender()
	first := put(t.Context(), g, a, "alice", "0", 1)
	require.Equal(t, 1, <-a.begun, "the first request is sent at once")
	second, third := put(t.Context(), g, a, "alice", "1", 1), put(t.Context(), g, a, "alice", "2", 1)
	other := put(t.Context(), g, a, "bob", "3", 1)
	require.Equal(t, 1, <-a.begun, "another recipient is not affected")
	fourth := put(t.Context(), g, a, "alice", "4", 1)
	require.Equal(t, 3, <-a.begun, "a full batch is sent at once")
	for range 3 {
		a.answer <- nil
	}
	for question, got := range map[string]<-chan result{"0": first, "1": second, "2": third, "3": other, "4": fourth} {
		require.Equal(t, result{answer: "answer to " + question}, <-got, "each caller gets its own answer")
	}
}

func TestBatcher_SendsWaitingBatch_WhenEarlierBatchIsDone(t *testing.T) {
	t.Parallel()
	g, a := &gather.Batcher[string, string]{Limits: slowLimits}, newFakeSender()
	first := put(t.Context(), g, a, "alice", "0", 1)
	<-a.begun
	leaving, cancel := context.WithCancel(t.Context())
	second := put(leaving, g, a, "alice", "1", 1)
	cancel()
	require.ErrorIs(t, (<-second).err, context.Canceled, "a caller whose context ends returns")
	a.answer <- nil
	require.NoError(t, (<-first).err)
	require.Equal(t, 1, <-a.begun, "its request is sent nevertheless: other callers may wait for the batch")
	a.answer <- errors.New("away")
	third := put(t.Context(), g, a, "alice", "2", 1)
	<-a.begun
	a.answer <- errors.New("still away")
	require.EqualError(t, (<-third).err, "still away", "the error is returned")
}

func TestBatcher_SendsWaitingBatch_WhenMaxDelayExpires(t *testing.T) {
	t.Parallel()
	g, a := &gather.Batcher[string, string]{Limits: gather.Limits{MaxDelay: time.Millisecond, BatchSize: 3,
		BatchBytes: 100, Concurrent: 2, Queued: 10}}, newFakeSender()
	first := put(t.Context(), g, a, "alice", "0", 1)
	<-a.begun
	second := put(t.Context(), g, a, "alice", "1", 1)
	require.Equal(t, 1, <-a.begun, "a slow batch does not delay the next one")
	a.answer <- nil
	a.answer <- nil
	require.NoError(t, (<-first).err)
	require.NoError(t, (<-second).err)
}

func TestBatcher_SplitsBatch_WhenRequestsAreLarge(t *testing.T) {
	t.Parallel()
	g, a := &gather.Batcher[string, string]{Limits: slowLimits}, newFakeSender()
	results := []<-chan result{put(t.Context(), g, a, "alice", "0", 1000)}
	require.Equal(t, 1, <-a.begun, "a single request is sent regardless of its size")
	results = append(results, put(t.Context(), g, a, "alice", "1", 60), put(t.Context(), g, a, "alice", "2", 60))
	require.Equal(t, 1, <-a.begun, "two requests that are too large together are sent separately")
	for range 3 {
		a.answer <- nil
	}
	for _, one := range results {
		require.NoError(t, (<-one).err)
	}
}

func TestBatcher_ReturnsError_WhenSendPanicsOrReturnsTooFewResults(t *testing.T) {
	t.Parallel()
	var g gather.Batcher[string, string]
	_, err := g.Do(t.Context(), "alice", "0", 1, func(context.Context, []string) ([]string, error) { panic("no") })
	require.EqualError(t, err, "panic: no")
	_, err = g.Do(t.Context(), "alice", "0", 1, func(context.Context, []string) ([]string, error) { return nil, nil })
	require.EqualError(t, err, "1 requests got 0 results")
}

func TestBatcher_ManyConcurrentCallers(t *testing.T) {
	t.Parallel()
	var g gather.Batcher[int, int]
	var asking sync.WaitGroup
	for i := range 500 {
		asking.Go(func() {
			answer, err := g.Do(t.Context(), fmt.Sprint(i%3), i, 1, func(_ context.Context, all []int) ([]int, error) {
				answers := make([]int, len(all))
				for k, question := range all {
					answers[k] = 2 * question
				}
				return answers, nil
			})
			if err != nil || answer != 2*i {
				t.Errorf("question %d: %d, %v", i, answer, err)
			}
		})
	}
	asking.Wait()
}

// A recipient never has more running batches than Concurrent: with all at once, every answer would be late.
func TestBatcher_QueuesBatches_WhenConcurrencyLimitReached(t *testing.T) {
	t.Parallel()
	g, a := &gather.Batcher[string, string]{Limits: gather.Limits{MaxDelay: 50 * time.Millisecond, BatchSize: 2,
		BatchBytes: 100, Concurrent: 2, Queued: 5}}, newFakeSender()
	results := make(chan result, 10)
	ask := func(n int) {
		for range n {
			go func() {
				answer, err := g.Do(t.Context(), "alice", "x", 1, a.send)
				results <- result{answer, err}
			}()
		}
	}
	ask(1)
	require.Equal(t, 1, <-a.begun)
	ask(2)
	require.Equal(t, 2, <-a.begun)
	ask(6)
	require.ErrorIs(t, (<-results).err, gather.ErrBusy, "a request is refused at once when the queue is full")
	require.Empty(t, a.begun, "no more than two batches run at the same time")
	for _, n := range []int{2, 2, 1} {
		a.answer <- nil
		require.Equal(t, n, <-a.begun)
	}
	a.answer <- nil
	a.answer <- nil
	for range 8 {
		require.NoError(t, (<-results).err)
	}
}
