package attempt_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workload"
)

var (
	deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}
	errBug      = errors.New("index out of range")
	errDown     = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errLacks    = &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden,
		Message: `User "worker" cannot patch resource "deployments"`}}
	errConflict = apierrors.NewConflict(deployments, "order", errors.New("x"))
	errMissing  = apierrors.NewNotFound(deployments, "order")
	errInvalid  = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", deployments, "order", "bad", 0,
		false)
)

// scripted is a job with given rounds; the last one repeats.
type scripted struct {
	*attempt.Attempt
	rounds []round
	did    int
	failed func(f *failure.Error) *failure.Error
}

type round struct {
	next attempt.Next
	err  error
}

func (j *scripted) Reconcile(context.Context) (attempt.Next, error) {
	r := j.rounds[min(j.did, len(j.rounds)-1)]
	j.did++
	if r.err == nil {
		j.Read()
	}
	return r.next, r.err
}

func (j *scripted) Missing(error) error { return failure.New(failure.NotFound, "does not exist") }

func (j *scripted) Failed(_ context.Context, f *failure.Error) *failure.Error {
	if j.failed == nil {
		return f
	}
	return j.failed(f)
}

var (
	fails = func(err error) round { return round{err: err} }
	waits = round{next: attempt.Next{Action: attempt.Wait, Reason: "1 of 3 pods are ready", Within: time.Second}}
	done  = round{next: attempt.Next{Action: attempt.Done}}
)

// run makes one attempt of ten seconds.
func run(t *testing.T, terms attempt.Terms, rounds ...round) (*scripted, time.Duration, *temporal.ApplicationError) {
	t.Helper()
	terms.Subject = "Deployment shop/order"
	job := &scripted{rounds: rounds}
	took, app := try(t, terms, job, attempt.Options{})
	return job, took, app
}

func try(t *testing.T, terms attempt.Terms, job *scripted, options attempt.Options) (time.Duration,
	*temporal.ApplicationError) {
	t.Helper()
	options.ListenFor, options.Now = 10*time.Second, time.Now
	job.Attempt = attempt.Start(t.Context(), options, terms)
	began := time.Now()
	err := job.Run(t.Context(), job)
	if err == nil {
		return time.Since(began), nil
	}
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	return time.Since(began), app
}

func TestRounds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		terms  attempt.Terms
		rounds []round
		did    int
		took   time.Duration
		kind   failure.Kind
		says   string
		again  time.Duration
		spent  int64
	}{
		"done":    {reason: "a finished job takes one round", rounds: []round{done}, did: 1},
		"written": {reason: "the next round follows a write at once", rounds: []round{{}, {}, done}, did: 3},
		"conflict": {reason: "another client was faster: the next round decides again",
			rounds: []round{fails(errConflict), done}, did: 2, took: 100 * time.Millisecond},
		"wait succeeds": {reason: "a wait ends when the awaited condition holds", rounds: []round{waits, waits, done},
			did: 3, took: 2 * time.Second},
		"takes longer": {reason: "the attempt frees its worker slot and reports the awaited condition",
			rounds: []round{waits}, did: 11, took: 10 * time.Second, kind: failure.NotReady,
			says: "1 of 3 pods are ready", again: 2 * time.Second},
		"long spent time": {reason: "the pause grows to a twentieth of the time used",
			terms: attempt.Terms{SpentSeconds: 100}, rounds: []round{waits}, did: 11, took: 10 * time.Second,
			kind: failure.NotReady, says: "1 of 3", again: 5500 * time.Millisecond},
		"deadline is near": {reason: "the pause does not exceed the time left",
			terms: attempt.Terms{SpentSeconds: 1000, DeadlineSeconds: 1013}, rounds: []round{waits}, did: 11,
			took: 10 * time.Second, kind: failure.NotReady,
			says: "1 of 3", again: 3 * time.Second},
		"unreachable": {reason: "an outage beyond its budget fails the activity and keeps the used part of the " +
			"deadline", terms: attempt.Terms{UnreachableBudgetSeconds: 2, SpentSeconds: 17},
			rounds: []round{fails(errDown)},
			did:    4, took: 3 * time.Second, kind: failure.Unreachable,
			says: "Deployment shop/order: its cluster has been out of reach for more than 2 s: dial tcp", spent: 17},
		"short outage": {reason: "an outage within its budget is no failure",
			terms:  attempt.Terms{UnreachableBudgetSeconds: 2},
			rounds: []round{fails(errDown), fails(errDown), {}, fails(errDown), fails(errDown), done}, did: 6,
			took: 4 * time.Second},
		"no budget": {reason: "0 means no limit: the server retries for ever", rounds: []round{fails(errDown)},
			did: 11, took: 10 * time.Second, kind: failure.NotReady, says: "its cluster is out of reach: dial tcp",
			again: 2 * time.Second},
		"lacks a permission": {reason: "a permission that is missing for five seconds fails the activity",
			terms: attempt.Terms{SpentSeconds: 3}, rounds: []round{fails(errLacks)}, did: 6, took: 5 * time.Second,
			kind: failure.Forbidden,
			says: "Deployment shop/order: this party's worker lacks a permission, which has to be granted: ", spent: 3},
		"API server starts": {reason: "an API server that has just started has not loaded all RBAC rules",
			rounds: []round{fails(errLacks), fails(errLacks), done}, did: 3, took: 2 * time.Second},
		"missing": {reason: "the job chooses the failure for a missing object",
			rounds: []round{fails(errMissing)}, did: 1, kind: failure.NotFound, says: "does not exist"},
		"refused": {reason: "a refused write is a permanent failure", rounds: []round{fails(errInvalid)},
			did: 1, kind: failure.Refused, says: "Deployment shop/order: its cluster does not accept this: "},
		"the job fails": {reason: "the job's own failures are permanent",
			rounds: []round{fails(failure.New(failure.Drift, "edited"))}, did: 1, kind: failure.Drift, says: "edited"},
		"the job waits": {reason: "the job may end the attempt itself",
			rounds: []round{fails(&failure.Error{Kind: failure.NotReady, Message: "of an earlier serving",
				RetryAfter: time.Minute})}, did: 1, kind: failure.NotReady, says: "earlier", again: time.Minute},
		"known": {reason: "a known failure is retried by the server",
			terms:  attempt.Terms{KnownFailure: "edited", KnownFailureRetry: time.Hour},
			rounds: []round{fails(failure.New(failure.Drift, "edited"))}, did: 1, kind: failure.NotReady,
			says: "edited", again: time.Hour},
		"known system failure": {reason: "a permission may be granted at any time",
			terms:  attempt.Terms{KnownFailure: "may not", KnownFailureRetry: time.Hour},
			rounds: []round{fails(failure.New(failure.Forbidden, "may not"))}, did: 1,
			kind: failure.NotReady, says: "may not", again: time.Minute},
		"new failure": {reason: "a new failure is reported", terms: attempt.Terms{KnownFailure: "scaled"},
			rounds: []round{fails(failure.New(failure.Drift, "edited"))}, did: 1, kind: failure.Drift, says: "edited"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job, took, app := run(t, tc.terms, tc.rounds...)
				require.Equal(t, tc.did, job.did, tc.reason)
				require.Equal(t, tc.took, took, tc.reason)
				if tc.kind == "" {
					require.Nil(t, app, tc.reason)
					return
				}
				require.NotNil(t, app, tc.reason)
				require.Equal(t, string(tc.kind), app.Type(), tc.reason)
				require.Contains(t, app.Message(), tc.says, tc.reason)
				require.Equal(t, tc.kind != failure.NotReady, app.NonRetryable(), tc.reason)
				require.Equal(t, tc.again, app.NextRetryDelay(), tc.reason)
				var details failure.Details
				require.NoError(t, app.Details(&details))
				require.Equal(t, tc.spent, details.SpentSeconds, tc.reason)
			})
		})
	}
}

// An error that is not the cluster's is returned to the server unchanged, and uses no budget for outages.
func TestInternalError_IsReturnedUnchanged(t *testing.T) {
	t.Parallel()
	job := &scripted{rounds: []round{fails(errBug)}}
	job.Attempt = attempt.Start(t.Context(), attempt.Options{ListenFor: 10 * time.Second, Now: time.Now},
		attempt.Terms{UnreachableBudgetSeconds: 1})
	require.Equal(t, errBug, job.Run(t.Context(), job))
	require.Nil(t, job.Progress().UnreachableSince)
}

// The cluster is unreachable for longer than the deadline in the middle of a wait.
func TestDeadline_IgnoresTimeOfOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		job, _, app := run(t, attempt.Terms{DeadlineSeconds: 4}, waits, waits, fails(errDown), fails(errDown),
			fails(errDown), fails(errDown), fails(errDown), waits, done)
		require.Nil(t, app)
		require.False(t, job.Overdue(), "only the time in which the cluster answered counts")
		p := job.Progress()
		require.Equal(t, 2*time.Second, p.Elapsed())
	})
}

// The attempt reads right after the deadline, even if the job asked for a longer wait.
func TestWait_EndsRightAfterDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		forLong := round{next: attempt.Next{Action: attempt.Wait}}
		job, took, app := run(t, attempt.Terms{DeadlineSeconds: 3}, forLong, done)
		require.Nil(t, app)
		require.True(t, job.Overdue())
		require.Equal(t, 3010*time.Millisecond, took)
	})
}

// A change ends the wait, and the subscription with it.
func TestWait_EndsOnChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var listening context.Context
		listens := attempt.Next{Action: attempt.Wait, Listen: func(ctx context.Context) (<-chan struct{}, error) {
			listening = ctx
			wake := make(chan struct{}, 1)
			time.AfterFunc(3*time.Second, func() { wake <- struct{}{} })
			return wake, nil
		}}
		_, took, app := run(t, attempt.Terms{}, round{next: listens}, done)
		require.Nil(t, app)
		require.Equal(t, 3*time.Second, took)
		require.Error(t, listening.Err(), "the subscription has ended")
	})
}

// A job may continue after a failure to clean up, and report it at the end.
func TestFailed_LetsJobCleanUpFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		drift := failure.New(failure.Drift, "edited")
		var first *failure.Error
		job := &scripted{rounds: []round{fails(drift), {}, fails(drift)}}
		job.failed = func(f *failure.Error) *failure.Error {
			if first == nil {
				first = f
				return nil
			}
			return f
		}
		_, app := try(t, attempt.Terms{}, job, attempt.Options{})
		require.Equal(t, string(failure.Drift), app.Type())
		require.Equal(t, 3, job.did, "the rounds after the failure clean up")
	})
}

// The process of an attempt is suspended for longer than it may be silent: the attempt does nothing more.
func TestStalledAttempt_EndsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		job := &scripted{rounds: []round{{next: attempt.Next{Action: attempt.Wait, Within: 8 * time.Second}}, done}}
		_, app := try(t, attempt.Terms{}, job, attempt.Options{StalledAfter: 5 * time.Second})
		require.Equal(t, string(failure.NotReady), app.Type())
		require.Equal(t, 1, job.did)
	})
}

// The error of a superseded attempt is returned unchanged.
func TestSupersededAttempt_ReturnsErrSuperseded(t *testing.T) {
	t.Parallel()
	job := &scripted{rounds: []round{fails(heartbeat.ErrSuperseded)}}
	job.Attempt = attempt.Start(t.Context(), attempt.Options{ListenFor: time.Second, Now: time.Now}, attempt.Terms{})
	require.ErrorIs(t, job.Run(t.Context(), job), heartbeat.ErrSuperseded)
}

// An outage that started in an earlier attempt counts.
func TestUnreachableBudget_CoversAllAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		job := &scripted{rounds: []round{fails(errDown)}}
		job.Attempt = attempt.Start(t.Context(), attempt.Options{ListenFor: 10 * time.Second, Now: time.Now},
			attempt.Terms{UnreachableBudgetSeconds: 60})
		since := time.Now().Add(-61 * time.Second)
		job.Note(func(p *workload.Progress) { p.UnreachableSince = &since })
		err := job.Run(t.Context(), job)
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		require.Equal(t, string(failure.Unreachable), app.Type())
		require.Equal(t, 1, job.did)
	})
}
