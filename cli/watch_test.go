package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	clitask "slipway.io/slipway/cli/task"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
)

const shopEvents = "GET /api/v1/tasks/shop-1/events"

// watchedAPI serves a running task, and its event stream by the handlers, one per connection.
func watchedAPI(t *testing.T, connections ...http.HandlerFunc) *fakeAPI {
	t.Helper()
	api := newFakeAPI(t)
	api.on("GET /api/v1/tasks/shop-1", func(request) answer { return answerJSON(http.StatusOK, shopTask()) })
	var number atomic.Int32
	api.streams[shopEvents] = func(w http.ResponseWriter, r *http.Request) {
		n := int(number.Add(1))
		if n > len(connections) {
			t.Errorf("connection %d was not expected", n)
			return
		}
		connections[n-1](w, r)
	}
	return api
}

// ending is a connection that sends the task in this state.
func ending(t *testing.T, task plan.Task) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { sendEvent(t, w, "state", "run-1.9", task) }
}

// hanging is a connection that sends one state and then stays open.
func hanging(t *testing.T, began chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sendEvent(t, w, "state", "run-1.1", shopTask())
		if began != nil {
			close(began)
		}
		<-r.Context().Done()
	}
}

func TestWatchExitCodes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		// states are sent one after another; the connection then stays open, so that only they can end the watch.
		states []plan.TaskState
		args   []string
		code   int
	}{
		"Succeeded": {"Success is 0.", []plan.TaskState{plan.TaskSucceeded}, nil, app.ExitOK},
		"Failed":    {"A failed task fails the pipeline.", []plan.TaskState{plan.TaskFailed}, nil, app.ExitFailure},
		"Stopped": {"Stopped is neither success nor failure.", []plan.TaskState{plan.TaskStopping, plan.TaskStopped},
			nil, app.ExitStopped},
		"Interrupted": {"With --exit-on-interrupted, Interrupted ends the watch.",
			[]plan.TaskState{plan.TaskInterrupted},
			[]string{"--exit-on-interrupted"}, app.ExitInterrupted},
		"Paused": {"With --exit-on-paused, Paused ends the watch.", []plan.TaskState{plan.TaskPausing, plan.TaskPaused},
			[]string{"--exit-on-paused"}, app.ExitPaused},
		"GoesOn": {"Without these flags, the watch continues.",
			[]plan.TaskState{plan.TaskPaused, plan.TaskRunning, plan.TaskInterrupted, plan.TaskRunning,
				plan.TaskSucceeded}, nil, app.ExitOK},
		"OtherOption": {"Each flag affects only its own state.",
			[]plan.TaskState{plan.TaskPaused, plan.TaskInterrupted, plan.TaskSucceeded},
			[]string{"--exit-on-interrupted"}, app.ExitInterrupted},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := watchedAPI(t, func(w http.ResponseWriter, r *http.Request) {
				for n, s := range c.states {
					sendEvent(t, w, "state", fmt.Sprintf("run-1.%d", n), shopTaskIn(s, "because"))
				}
				<-r.Context().Done()
			})
			got := slipway(t, api, append([]string{"task", "watch", "shop-1"}, c.args...)...)
			require.Equal(t, c.code, got.code, "%s\n%s%s", c.reason, got.out, got.err)
		})
	}
}

func TestWatch_WaitsForOtherServices_AfterFailure(t *testing.T) {
	t.Parallel()
	failing := shopTaskIn(plan.TaskFailed, "service 111 failed")
	failing.FinishedAt = nil
	api := watchedAPI(t, func(w http.ResponseWriter, r *http.Request) {
		sendEvent(t, w, "state", "run-1.1", failing)
		sendEvent(t, w, "state", "run-1.2", shopTaskIn(plan.TaskFailed, "all services have ended"))
		<-r.Context().Done()
	})
	got := slipway(t, api, "task", "watch", "shop-1")
	require.Equal(t, app.ExitFailure, got.code)
	require.Contains(t, got.out, "all services have ended",
		"the state is Failed immediately, but the watch continues until finishedAt is set")
}

func TestWatch_ExitsImmediately_WhenTaskHasEnded(t *testing.T) {
	t.Parallel()
	api := watchedAPI(t)
	api.on("GET /api/v1/tasks/shop-1", func(request) answer {
		return answerJSON(http.StatusOK, shopTaskIn(plan.TaskStopped, "stopped by li"))
	})
	got := slipway(t, api, "task", "watch", "shop-1")
	require.Equal(t, app.ExitStopped, got.code, "no stream is opened for a task that has ended")
	require.Contains(t, got.out, "task shop-1 is Stopped after 1m00s\nReport: slipway task report shop-1\n")
}

func TestWatch_PrintsEachChangeOnce_InPipe(t *testing.T) {
	t.Parallel()
	step := shopTask()
	step.Services[1].Workloads[0].Message = "3 of 3 pods are new and ready"
	done := shopTaskIn(plan.TaskSucceeded, "2 of 2 waves are done")
	done.Services[1].Workloads[0].State, done.Services[1].Workloads[0].Message = plan.ItemSucceeded, "restarted"
	done.Services[1].Workloads[1].State = plan.ItemSucceeded
	done.Services[2].Reason = done.Services[2].Workloads[0].Message
	done.History = []audit.Entry{{At: before(10 * time.Second), Actor: "li", Via: "cli", Verb: plan.VerbPause,
		Outcome: audit.Accepted, Message: "pausing"}}
	api := watchedAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, ": hello\n\n")
		sendEvent(t, w, "state", "run-1.1", shopTask()) // unchanged: prints nothing
		sendEvent(t, w, "state", "run-1.2", step)
		sendEvent(t, w, "stale", "run-1.2", map[string]string{"since": "2026-11-02T12:00:00Z",
			"reason": "Temporal is unreachable"})
		sendEvent(t, w, "state", "run-1.3", done)
	})
	got := slipway(t, api, "task", "watch", "shop-1")
	require.Equal(t, outcome{
		out: `11:58:56  wave 1 of 2 started: priority 3, 2 services
11:58:56    service 111: RESTART one by one Running: being released
11:59:00    service 222: STOP Succeeded after 4s: stopped
11:59:00    service 222: Deployment shop/cart Succeeded: stopped: scaled from 3 to 0
12:00:00    service 111: Deployment shop/order Running: 2 of 3 pods are new and ready
12:00:00  task shop-1 is Running: wave 1 of 2: 1 of 2 services is done
12:00:00    service 111: Deployment shop/order Running: 3 of 3 pods are new and ready
11:59:00    service 222: STOP Succeeded after 4s: stopped: scaled from 3 to 0
11:59:50  pause by li via cli, accepted: pausing
11:59:55    service 111: RESTART one by one Succeeded after 59s: restarted
11:59:55    service 111: Deployment shop/order Succeeded: restarted
11:59:55    service 111: alice: StatefulSet shop/order-db Succeeded
11:59:55  task shop-1 is Succeeded: 2 of 2 waves are done
12:00:00  wave 2 of 2 started: priority 1, 1 service
12:00:00    service 333: START Succeeded
task shop-1 is Succeeded after 1m00s
Report: slipway task report shop-1
`,
		err: "12:00:00  the state may be out of date: Temporal is unreachable\n",
	}, got)
}

func TestWatch_PrintsPastChanges_WithTheirTimes(t *testing.T) {
	t.Parallel()
	task := shopTaskIn(plan.TaskStopped, "stopped by li")
	yesterday, later := before(24*time.Hour), before(23*time.Hour)
	task.Services = task.Services[2:]
	task.Services[0].StartedAt, task.Services[0].FinishedAt, task.FinishedAt = &yesterday, &later, &later
	task.Services[0].Workloads = []plan.WorkloadStatus{}
	task.History = []audit.Entry{{At: before(90 * time.Minute), Actor: "li", Via: "cli", Verb: plan.VerbResume,
		Outcome: audit.Refused, Message: "the task has ended"}}
	api := watchedAPI(t)
	api.on("GET /api/v1/tasks/shop-1", func(request) answer { return answerJSON(http.StatusOK, task) })
	require.Contains(t, slipway(t, api, "task", "watch", "shop-1").out,
		`2026-11-01 12:00:00  wave 1 of 1 started: priority 3, 1 service
2026-11-01 13:00:00    service 222: STOP Succeeded after 1h00m: stopped
2026-11-01 13:00:00  task shop-1 is Stopped: stopped by li
10:30:00  resume by li via cli, refused: the task has ended
`, "past changes have their own times, with the date if not today")
}

// It is certain that a service is skipped when the task ends, not when the watch reads it.
func TestWatch_PrintsSkippedServices_AtTaskEnd(t *testing.T) {
	t.Parallel()
	task := shopTaskIn(plan.TaskStopped, "1 of 3 services done")
	task.Services[0].Reason = "never started: the task is Stopped"
	api := watchedAPI(t)
	api.on("GET /api/v1/tasks/shop-1", func(request) answer { return answerJSON(http.StatusOK, task) })
	require.Contains(t, slipway(t, api, "task", "watch", "shop-1").out,
		`11:59:55    service 333: START Skipped: never started: the task is Stopped
11:59:55  task shop-1 is Stopped: 1 of 3 services done
task shop-1 is Stopped`)
}

func TestWatch_PrintsOneObjectPerLine_AsJSON(t *testing.T) {
	t.Parallel()
	api := watchedAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		sendEvent(t, w, "state", "run-1.1", shopTask())
		sendEvent(t, w, "state", "run-1.2", shopTaskIn(plan.TaskSucceeded, "done"))
	})
	got := slipway(t, api, "task", "watch", "shop-1", "-o", "json")
	require.Equal(t, app.ExitOK, got.code, got.err)
	var states []plan.TaskState
	for line := range strings.Lines(got.out) {
		var task plan.Task
		require.NoError(t, json.Unmarshal([]byte(line), &task))
		states = append(states, task.State)
	}
	require.Equal(t, []plan.TaskState{plan.TaskRunning, plan.TaskSucceeded}, states, "each state once")
}

func TestWatch_Reconnects_AfterLostConnection(t *testing.T) {
	t.Parallel()
	lastID := make(chan string, 1)
	away := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(client.Problem{Status: http.StatusServiceUnavailable,
			Detail: "Temporal is unreachable"})
	}
	api := watchedAPI(t,
		func(w http.ResponseWriter, _ *http.Request) { sendEvent(t, w, "state", "run-1.4", shopTask()) },
		away, away,
		func(w http.ResponseWriter, _ *http.Request) {
			sendEvent(t, w, "state", "run-1.5", shopTask())
			panic(http.ErrAbortHandler) // the server dies in the middle of an event
		},
		func(w http.ResponseWriter, r *http.Request) {
			lastID <- r.Header.Get("Last-Event-ID")
			sendEvent(t, w, "state", "run-1.6", shopTaskIn(plan.TaskSucceeded, "done"))
		},
	)
	s := newSession(t, "")
	got := s.run("task", "watch", "shop-1", "--api", api.URL)
	require.Equal(t, app.ExitOK, got.code, got.err)
	require.Equal(t, "run-1.5", <-lastID, "the last event ID is sent")
	require.Contains(t, got.err, "event stream lost, retrying: the server ended the stream\n")
	require.Contains(t, got.err, "event stream lost, retrying: Temporal is unreachable\n")
	require.Len(t, s.pauses, 4, "one pause before each attempt")
	for n, base := range []time.Duration{follow.FirstBackoff, 2 * follow.FirstBackoff, 4 * follow.FirstBackoff,
		follow.FirstBackoff} {
		require.GreaterOrEqual(t, s.pauses[n], base, "the pauses double: %s", s.pauses)
		require.Less(t, s.pauses[n], base+base/4, "and are reset after a state was received: %s", s.pauses)
	}
}

// shopStream opens the events of task shop-1.
func shopStream(api *client.Client) func(context.Context, string) (*http.Response, error) {
	return func(ctx context.Context, last string) (*http.Response, error) {
		return apiclient.Request{Call: apiclient.NamedWith((*client.Client).WatchTask), Name: "shop-1",
			LastEventID: last}.Send(ctx, api)
	}
}

func TestFollower_BackoffIsBounded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var pauses []time.Duration
	api := newFakeAPI(t)
	address := api.URL
	api.Close()
	connection, err := client.NewClient(address, client.WithHTTPClient(
		&apiclient.Caller{Address: address, HTTP: http.DefaultClient}))
	require.NoError(t, err)
	f := &follow.Follower[plan.Task]{Open: shopStream(connection), Ended: clitask.Ended,
		IdleTimeout: follow.IdleTimeout,
		Wait: func(_ context.Context, d time.Duration) {
			if pauses = append(pauses, d); len(pauses) == 12 {
				cancel()
			}
		}}
	require.ErrorIs(t, f.Run(ctx, func(follow.Update[plan.Task]) {}), context.Canceled)
	require.Less(t, pauses[11], follow.LastBackoff+follow.LastBackoff/4,
		"after a long outage, the follower reconnects within seconds: %s", pauses)
	require.GreaterOrEqual(t, pauses[11], follow.LastBackoff)
}

func TestFollower_Reconnects_WhenConnectionIsSilent(t *testing.T) {
	t.Parallel()
	api := watchedAPI(t, hanging(t, nil), ending(t, shopTaskIn(plan.TaskSucceeded, "done")))
	connection, err := client.NewClient(api.URL, client.WithHTTPClient(
		&apiclient.Caller{Address: api.URL, HTTP: api.Client()}))
	require.NoError(t, err)
	var lost []string
	f := &follow.Follower[plan.Task]{Open: shopStream(connection), Ended: clitask.Ended,
		IdleTimeout: 50 * time.Millisecond,
		Wait:        func(context.Context, time.Duration) {}}
	require.NoError(t, f.Run(t.Context(), func(u follow.Update[plan.Task]) {
		if u.Lost != "" {
			lost = append(lost, u.Lost)
		}
	}))
	require.Equal(t, []string{"no data received for 50ms"}, lost, "a silent connection is closed and reopened")
}

func TestWatch_Retries_WhenTooManyStreams(t *testing.T) {
	t.Parallel()
	full := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusTooManyRequests)
		_ = json.NewEncoder(w).Encode(client.Problem{Status: http.StatusTooManyRequests,
			Detail: "1000 event streams are open already"})
	}
	api := watchedAPI(t, full, ending(t, shopTaskIn(plan.TaskSucceeded, "done")))
	got := newSession(t, "").run("task", "watch", "shop-1", "--api", api.URL)
	require.Equal(t, app.ExitOK, got.code, got.err)
	require.Contains(t, got.err, "retrying: 1000 event streams are open already\n")
}

func TestWatch_Fails_WhenTaskIsDeleted(t *testing.T) {
	t.Parallel()
	api := watchedAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(client.Problem{Status: http.StatusNotFound, Detail: "there is no task shop-1"})
	})
	got := slipway(t, api, "task", "watch", "shop-1")
	require.Equal(t, app.ExitFailure, got.code, "a permanent error is not retried")
	require.Equal(t, "error: there is no task shop-1\n", got.err)
}

func TestWatchTimeout(t *testing.T) {
	t.Parallel()
	api := watchedAPI(t, hanging(t, nil))
	got := slipway(t, api, "task", "watch", "shop-1", "--timeout", "200ms")
	require.Equal(t, app.ExitTimeout, got.code)
	require.Equal(t, "error: task shop-1 has not ended after 200ms; it continues on the server\n", got.err)
	require.Equal(t, app.ExitUsage, slipway(t, api, "task", "watch", "shop-1", "--timeout", "-1s").code)
}

func TestWatch_Ends_OnCtrlC(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	api := watchedAPI(t, hanging(t, began))
	s := newSession(t, "")
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	got := s.run("task", "watch", "shop-1", "--api", api.URL)
	require.Equal(t, app.ExitSignal, got.code)
	require.Equal(t, "The task continues on the server. To watch it again: slipway task watch shop-1\n", got.err)
}

func TestPlanRunWatch(t *testing.T) {
	t.Parallel()
	api := watchedAPI(t, ending(t, shopTaskIn(plan.TaskStopped, "stopped")))
	api.on("POST /api/v1/plans/shop/execute", func(request) answer {
		return answerJSON(http.StatusAccepted,
			client.ExecuteResult{ID: "shop-1"})
	})
	got := slipway(t, api, "plan", "run", "shop", "--watch")
	require.Equal(t, app.ExitStopped, got.code, "the exit code is that of the watch")
	require.True(t, strings.HasPrefix(got.err, "task shop-1\n"), "the task's ID is printed first: %s", got.err)

	alone := slipway(t, api, "plan", "run", "shop", "--timeout", "3s")
	require.Equal(t, app.ExitUsage, alone.code)
	require.Equal(t, "error: --timeout requires --watch\n", alone.err,
		"a flag without an effect is rejected before the task is started")
}

func TestReadEvents(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		stream string
		want   []follow.Event
	}{
		"Plain": {"An event has a name, an ID and data.", "event: state\nid: 1\ndata: {}\n\n",
			[]follow.Event{{Name: "state", ID: "1", Data: []byte("{}")}}},
		"CRLF": {"Lines may end with CRLF.", "event:state\r\ndata:{}\r\n\r\n",
			[]follow.Event{{Name: "state", ID: "", Data: []byte("{}")}}},
		"Lines": {"Data may have several lines.", "data: a\ndata: b\n\n",
			[]follow.Event{{Name: "message", ID: "", Data: []byte("a\nb")}}},
		"Comment": {"Comments only keep the connection open.", ": ping\n\ndata: a\n\n",
			[]follow.Event{{Name: "message", ID: "", Data: []byte("a")}}},
		"KeepsID": {"An ID applies until the next one.", "id: 7\ndata: a\n\ndata: b\n\n",
			[]follow.Event{{Name: "message", ID: "7", Data: []byte("a")},
				{Name: "message", ID: "7", Data: []byte("b")}}},
		"NoData": {"An event without data is ignored.", "event: state\n\ndata: a\n\n",
			[]follow.Event{{Name: "message", ID: "", Data: []byte("a")}}},
		"CutOff": {"An event that is cut off is dropped.", "data: a\n\ndata: b\n",
			[]follow.Event{{Name: "message", ID: "", Data: []byte("a")}}},
		"LongLines": {"A line may have a megabyte.", "data: " + strings.Repeat("x", 1<<20) + "\n\n",
			[]follow.Event{{Name: "message", ID: "", Data: []byte(strings.Repeat("x", 1<<20))}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []follow.Event
			require.NoError(t, follow.ReadEvents(strings.NewReader(c.stream), func(e follow.Event) error {
				got = append(got, e)
				return nil
			}))
			require.Equal(t, c.want, got, c.reason)
		})
	}
}
