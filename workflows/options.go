package workflows

import (
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
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
