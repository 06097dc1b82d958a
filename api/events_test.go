package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
)

// event is one server-sent event.
type event struct {
	name, id, data string
}

// stream follows a task's events; its channel is closed at the stream's end.
func (e *engine) stream(ctx context.Context, id string, headers ...string) <-chan event {
	e.t.Helper()
	return e.streamOf(ctx, "/api/v1/tasks/"+id, headers...)
}

// streamOf follows the events of the release at an address.
func (e *engine) streamOf(ctx context.Context, path string, headers ...string) <-chan event {
	e.t.Helper()
	request := e.request(ctx, http.MethodGet, path+"/events", "", headers...)
	response, err := http.DefaultClient.Do(request)
	require.NoError(e.t, err)
	require.Equal(e.t, http.StatusOK, response.StatusCode)
	require.Equal(e.t, "text/event-stream", response.Header.Get("Content-Type"))
	events := make(chan event, 1000)
	go func() {
		defer close(events)
		defer func() { _ = response.Body.Close() }()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<22)
		var one event
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "event":
				one.name = value
			case "id":
				one.id = value
			case "data":
				one.data = value
			case "":
				if one.name != "" {
					events <- one
				}
				one = event{}
			}
		}
	}()
	return events
}

// next returns the next event of that name.
func next(t *testing.T, events <-chan event, name string) event {
	t.Helper()
	for {
		select {
		case one, open := <-events:
			require.True(t, open, "the stream has ended before a %s event", name)
			if one.name == name {
				return one
			}
		case <-time.After(waitTimeout):
			require.Fail(t, "no event came", "waited for %s", name)
		}
	}
}

func (one event) task(t *testing.T) plan.Task {
	t.Helper()
	var task plan.Task
	require.NoError(t, json.Unmarshal([]byte(one.data), &task))
	return task
}

func until(t *testing.T, events <-chan event, is func(plan.Task) bool) event {
	t.Helper()
	for {
		if one := next(t, events, "state"); is(one.task(t)) {
			return one
		}
	}
}

func inState(state plan.TaskState) func(plan.Task) bool {
	return func(t plan.Task) bool { return t.State == state }
}

func TestTaskEvents(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3", "222 1")
	e.party.hold("111")
	id := e.execute("shop")
	events := e.stream(t.Context(), id)
	pods := until(t, events, func(t plan.Task) bool {
		return len(t.Services[0].Workloads) == 1 && t.Services[0].Workloads[0].Message == "111: 2 of 3 pods are ready"
	})
	require.Regexp(t, `^[-0-9a-f]{36}\.\d+$`, pods.id, "run ID and sequence")
	e.call("POST", "/api/v1/tasks/"+id+"/pause", "").is(http.StatusOK, "it runs")
	paused := until(t, events, inState(plan.TaskPausing))
	require.Greater(t, paused.id, pods.id, "the sequence grows")

	again := e.stream(t.Context(), id, "Last-Event-ID: "+paused.id)
	require.Equal(t, plan.TaskPausing, next(t, again, "state").task(t).State,
		"a reader that reconnects gets the current state at once")

	e.party.open()
	until(t, events, inState(plan.TaskPaused))
	e.call("POST", "/api/v1/tasks/"+id+"/resume", "").is(http.StatusOK, "it is paused")
	for _, stream := range []<-chan event{events, again} {
		last := until(t, stream, inState(plan.TaskSucceeded)).task(t)
		for one := range stream {
			last = one.task(t)
		}
		require.Equal(t, plan.TaskSucceeded, last.State, "the last event is the final state")
	}
	late := e.stream(t.Context(), id)
	require.Equal(t, plan.TaskSucceeded, next(t, late, "state").task(t).State, "a task that has ended has one event")
	_, open := <-late
	require.False(t, open, "and the stream ends")
	e.call("GET", "/api/v1/tasks/nothing/events", "").is(http.StatusNotFound, "there is no such task")
}

func TestTaskEvents_ManyReadersGetFinalState(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3")
	e.party.hold("111")
	id := e.execute("shop")
	var wg sync.WaitGroup
	streams := make([]<-chan event, 30)
	for i := range streams {
		streams[i] = e.stream(t.Context(), id)
	}
	for _, stream := range streams {
		next(t, stream, "state")
	}
	leaving, leave := context.WithCancel(t.Context())
	left := e.stream(leaving, id)
	next(t, left, "state")
	leave()
	e.party.open()
	for _, stream := range streams {
		wg.Go(func() { until(t, stream, inState(plan.TaskSucceeded)) })
	}
	wg.Wait()
}

func TestTaskEvents_SendsStale_WhenTemporalUnavailable(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3")
	e.party.hold("111")
	id := e.execute("shop")
	events := e.stream(t.Context(), id)
	until(t, events, inState(plan.TaskRunning))
	e.temporalDown.Store(true)
	stale := next(t, events, "stale")
	require.Contains(t, stale.data, "cannot read the current state")
	e.temporalDown.Store(false)
	require.Equal(t, plan.TaskRunning, next(t, events, "state").task(t).State, "a state event ends the stale period")
	e.party.open()
	until(t, events, inState(plan.TaskSucceeded))
}

func TestTaskEvents_End_WhenTaskTerminated(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3")
	e.party.hold("111")
	id := e.execute("shop")
	events := e.stream(t.Context(), id)
	until(t, events, inState(plan.TaskRunning))
	require.NoError(t, e.temporal.TerminateWorkflow(t.Context(), "task/"+id, "", "by the test"))
	until(t, events, inState(plan.TaskInterrupted))
	for range events { //nolint:revive // until the stream ends
	}
}

func TestAPIClose_EndsStreams(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3")
	e.party.hold("111")
	id := e.execute("shop")
	events := e.stream(t.Context(), id)
	next(t, events, "state")
	e.api.Close()
	for range events { //nolint:revive // until the stream ends
	}
	e.call("GET", "/api/v1/tasks/"+id+"/events", "").is(http.StatusServiceUnavailable,
		"no stream is admitted during shutdown")
	e.call("GET", "/api/v1/tasks/"+id, "").is(http.StatusOK, "other requests are still answered")
}

// Of 10,000 requested streams, only the maximum is admitted; the engine continues to serve other requests.
func TestLongEventStreams_AreLimited_WhenTenThousandRequested(t *testing.T) {
	harness.Long(t)
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3")
	e.party.hold("111")
	id := e.execute("shop")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	answers := map[int]int{}
	for range 10_000 {
		response, err := http.DefaultClient.Do(e.request(ctx, http.MethodGet, "/api/v1/tasks/"+id+"/events", ""))
		require.NoError(t, err)
		answers[response.StatusCode]++
		if response.StatusCode != http.StatusOK {
			require.NoError(t, response.Body.Close())
		}
	}
	require.Equal(t, map[int]int{http.StatusOK: 1000, http.StatusTooManyRequests: 9000}, answers)
	require.Eventually(t, func() bool { return e.task(id).State == plan.TaskRunning }, waitTimeout, pollInterval,
		"the task is read and continues")
	leave()
	require.Eventually(t, func() bool {
		response, err := http.DefaultClient.Do(e.request(t.Context(), http.MethodGet, "/api/v1/tasks/"+id+"/events",
			""))
		require.NoError(t, err)
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, waitTimeout, pollInterval, "a stream is admitted again")
}
