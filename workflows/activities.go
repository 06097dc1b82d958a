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

// unlimited is said outright: Temporal's test suite takes an unset MaximumAttempts for 10.
const unlimited = 1 << 30

// again tries for as long as it takes, after 1 s at first and each time that much later, up to 15 s.
func again(later float64) *temporal.RetryPolicy {
	return &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: later, MaximumInterval: 15 * time.Second,
		MaximumAttempts: unlimited}
}

// centreForever is for what must happen however long the home cluster is away: nothing else can go on without it.
var centreForever = workflow.ActivityOptions{
	TaskQueue:           QueueEngine,
	StartToCloseTimeout: 10 * time.Second,
	RetryPolicy:         again(2),
}

// centreBriefly is for a question that somebody waits for.
var centreBriefly = workflow.ActivityOptions{
	TaskQueue:              QueueEngine,
	ScheduleToCloseTimeout: 10 * time.Second,
	StartToCloseTimeout:    5 * time.Second,
	RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 1, MaximumAttempts: unlimited},
}

// centreWithin is for what interrupts the release when the home cluster stays away past its budget.
func centreWithin(budget time.Duration) workflow.ActivityOptions {
	o := centreForever
	o.ScheduleToCloseTimeout = budget
	return o
}

// heartbeatTimeout is how long a worker that died keeps an operation waiting.
var heartbeatTimeout = 10 * time.Second

// localOnce is for one write at the centre by a local activity, which costs one event of the history. It is not tried again.
var localOnce = workflow.LocalActivityOptions{
	ScheduleToCloseTimeout: 4 * time.Second, StartToCloseTimeout: 4 * time.Second,
	RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
}

// atOnce does an activity of the centre as a local one. What does not succeed at once is left to an activity.
func atOnce(ctx workflow.Context, activity string, request, result any) bool {
	ctx = workflow.WithLocalActivityOptions(ctx, localOnce)
	return workflow.ExecuteLocalActivity(ctx, activity, request).Get(ctx, result) == nil
}

// partyRun is for an operation on a workload. An attempt is short and the server retries it: waiting for pods costs no worker and no
// history. pickUp is how long a party's queue may be without a worker.
func partyRun(queue string, pickUp time.Duration) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              queue,
		ScheduleToStartTimeout: pickUp,
		StartToCloseTimeout:    time.Minute,
		HeartbeatTimeout:       heartbeatTimeout,
		RetryPolicy:            again(1.5),
	}
}

// partyLook is for a question to a party, which interrupts the release when it stays unanswered past its budget.
func partyLook(queue string, budget time.Duration) workflow.ActivityOptions {
	o := centreWithin(budget)
	o.TaskQueue = queue
	return o
}

// partyRestore is for giving back what an operation borrowed: it is owed, however long the party is away.
func partyRestore(queue string) workflow.ActivityOptions {
	o := partyRun(queue, 0)
	o.HeartbeatTimeout = 0
	return o
}

// perform runs an activity with the options of its context, and reads what it answers into result.
func perform(ctx workflow.Context, activity string, request, result any) error {
	return workflow.ExecuteActivity(ctx, activity, request).Get(ctx, result)
}

// withActivity is the context of one activity with its summary.
func withActivity(ctx workflow.Context, options workflow.ActivityOptions, summary string) workflow.Context {
	options.Summary = summary
	return workflow.WithActivityOptions(ctx, options)
}

// systemTrouble says what keeps an activity from its work, "" when the error is the business's own, and what of the deadline is used.
func systemTrouble(err error, what string) (trouble string, spentSeconds int64) {
	if err == nil {
		return "", 0
	}
	if kindOf(err).System() {
		return message(err), detailsOf(err).SpentSeconds
	}
	var timeout *temporal.TimeoutError
	if !errors.As(err, &timeout) {
		return "", 0
	}
	if timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START {
		return fmt.Sprintf("no worker of %s takes work: start one (slipway worker)", what), 0
	}
	var app *temporal.ApplicationError
	if errors.As(timeout.Unwrap(), &app) {
		return fmt.Sprintf("%s: %s", what, app.Message()), 0
	}
	return fmt.Sprintf("%s does not answer", what), 0
}

// asSystem is an error of the centre as system trouble: the home cluster or Temporal is away, which is nobody's failure.
func asSystem(err error) error {
	if err == nil || kindOf(err).System() {
		return err
	}
	return temporal.NewNonRetryableApplicationError("the engine's centre does not answer: "+message(err), string(failure.Unreachable), nil)
}

// detailsOf are what travelled with a failure; none where there are none.
func detailsOf(err error) failure.Details {
	var app *temporal.ApplicationError
	var details failure.Details
	if errors.As(err, &app) && app.HasDetails() {
		_ = app.Details(&details)
	}
	return details
}

func kindOf(err error) failure.Kind {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return failure.Kind(app.Type())
	}
	return ""
}

func isScheduleToStart(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// message is the innermost text of an error from an activity or a child: what a person wants to read.
func message(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
