package workflows

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
)

const parentClosePolicy = enumspb.PARENT_CLOSE_POLICY_ABANDON

// unlimited is set explicitly: Temporal's test suite reads an unset MaximumAttempts as 10.
const unlimited = 1 << 30

// retryForever retries without a limit. The first pause is 1 s, and each further one is backoff times as long, up to 15
// s.
func retryForever(backoff float64) *temporal.RetryPolicy {
	return &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: backoff,
		MaximumInterval: 15 * time.Second, MaximumAttempts: unlimited}
}

// centreForever is for an activity that the workflow cannot continue without: it is retried until the home cluster
// answers.
var centreForever = workflow.ActivityOptions{
	TaskQueue:           QueueEngine,
	StartToCloseTimeout: 10 * time.Second,
	RetryPolicy:         retryForever(2),
}

// centreBriefly is for a query that a client is waiting for.
var centreBriefly = workflow.ActivityOptions{
	TaskQueue:              QueueEngine,
	ScheduleToCloseTimeout: 10 * time.Second,
	StartToCloseTimeout:    5 * time.Second,
	RetryPolicy: &temporal.RetryPolicy{InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 1,
		MaximumAttempts: unlimited},
}

// centreWithin limits the time to budget. If the home cluster does not answer by then, the release is interrupted.
func centreWithin(budget time.Duration) workflow.ActivityOptions {
	o := centreForever
	o.ScheduleToCloseTimeout = budget
	return o
}

// heartbeatTimeout is how long it takes until Temporal retries an operation whose worker died.
var heartbeatTimeout = 10 * time.Second

// localOnce is for one write on the home cluster by a local activity, which costs one history event. It is not retried.
var localOnce = workflow.LocalActivityOptions{
	ScheduleToCloseTimeout: 4 * time.Second, StartToCloseTimeout: 4 * time.Second,
	RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
}

// tryLocally executes an activity of the centre as a local activity and reports whether it succeeded. If not, the
// caller falls back to a regular activity.
func tryLocally(ctx workflow.Context, activity string, request, result any) bool {
	ctx = workflow.WithLocalActivityOptions(ctx, localOnce)
	return workflow.ExecuteLocalActivity(ctx, activity, request).Get(ctx, result) == nil
}

// partyRun is for an operation on a workload. Attempts are short and Temporal's server retries them, so waiting for
// pods takes no worker slot and no history. pickUp is how long the party's queue may be without a worker.
func partyRun(queue string, pickUp time.Duration) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              queue,
		ScheduleToStartTimeout: pickUp,
		StartToCloseTimeout:    time.Minute,
		HeartbeatTimeout:       heartbeatTimeout,
		RetryPolicy:            retryForever(1.5),
	}
}

// partyQuery is for a query to a party. If the party does not answer within budget, the release is interrupted.
func partyQuery(queue string, budget time.Duration) workflow.ActivityOptions {
	o := centreWithin(budget)
	o.TaskQueue = queue
	return o
}

// grouped groups items by key, at most this many in a group, in the order of the first of each group.
func grouped[T any, K comparable](items []T, most int, key func(T) K) (groups [][]T) {
	of := map[K]int{}
	for _, item := range items {
		at, known := of[key(item)]
		if !known || len(groups[at]) == most {
			at, groups = len(groups), append(groups, nil)
			of[key(item)] = at
		}
		groups[at] = append(groups[at], item)
	}
	return groups
}

// perform executes an activity with the options of its context and decodes the answer into result.
func perform(ctx workflow.Context, activity string, request, result any) error {
	return workflow.ExecuteActivity(ctx, activity, request).Get(ctx, result)
}

// sleep waits for d by a timer with a summary.
func sleep(ctx workflow.Context, d time.Duration, summary string) error {
	return workflow.NewTimerWithOptions(ctx, d, workflow.TimerOptions{Summary: summary}).Get(ctx, nil)
}

// withActivity returns a context with the options and the summary of one activity.
func withActivity(ctx workflow.Context, options workflow.ActivityOptions, summary string) workflow.Context {
	options.Summary = summary
	return workflow.WithActivityOptions(ctx, options)
}

// systemTrouble returns why an activity could not do its work, and the seconds of the deadline that are used. trouble
// is "" if err is an ordinary failure, or nil.
func systemTrouble(err error, what string) (trouble string, spentSeconds int64) {
	if err == nil {
		return "", 0
	}
	if kindOf(err).System() {
		return message(err), detailsOf(err).SpentSeconds
	}
	var timeout *temporal.TimeoutError
	var app *temporal.ApplicationError
	switch {
	case !errors.As(err, &timeout):
		return "", 0
	case isScheduleToStart(err):
		return fmt.Sprintf("no worker of %s takes work: start one (slipway worker)", what), 0
	case errors.As(timeout.Unwrap(), &app):
		return fmt.Sprintf("%s: %s", what, app.Message()), 0
	}
	return fmt.Sprintf("%s does not answer", what), 0
}

// asSystemError turns an error of the centre into system trouble: the home cluster or Temporal is unreachable, so the
// operation itself has not failed.
func asSystemError(err error) error {
	if err == nil || kindOf(err).System() {
		return err
	}
	return newFailure(failure.Unreachable, "the engine's centre does not answer: "+message(err))
}

// newFailure is the failure with which an operation ends.
func newFailure(kind failure.Kind, why string) error {
	return temporal.NewNonRetryableApplicationError(why, string(kind), nil)
}

// detailsOf returns the details that a failure carries; the zero value if there are none.
func detailsOf(err error) failure.Details {
	var app *temporal.ApplicationError
	var details failure.Details
	if errors.As(err, &app) && app.HasDetails() {
		_ = app.Details(&details)
	}
	return details
}

func kindOf(err error) failure.Kind {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return failure.Kind(app.Type())
	}
	return ""
}

func isScheduleToStart(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// message returns the innermost text of an error from an activity or a child workflow, without Temporal's wrapping.
func message(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return app.Message()
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}
