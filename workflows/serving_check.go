package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/serving"
)

// checkPickUp is how long a check waits for a worker of the queue, and checkEnd how long for the one that asked for it, which may be one of
// several with namespaces of their own: one that has gone away asks again when it is back.
const checkPickUp, checkEnd = time.Minute, 10 * time.Minute

// ServingCheck has a party's worker that has just started look for what it should find, page by page, and tells the statuses what is missing. Then it ends.
func ServingCheck(ctx workflow.Context, in serving.ExpectedRequest) error {
	for {
		var page serving.ExpectedPage
		err := workflow.ExecuteActivity(withActivity(ctx, centreForever, "list what should be there"), serving.ActivityExpected, in).Get(ctx, &page)
		if err != nil {
			return err
		}
		if len(page.Expected) > 0 {
			if err := checkParty(ctx, in.Queue, page.Expected); err != nil {
				return err
			}
		}
		if in.Cursor = page.Next; in.Cursor == "" {
			return nil
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return workflow.NewContinueAsNewError(ctx, TypeServingCheck, in)
		}
	}
}

// checkParty has the worker of a queue look for Deployments, and writes into the statuses which of them are missing.
func checkParty(ctx workflow.Context, queue string, expected []serving.Expected) error {
	var found serving.CheckResult
	look := partyRun(queue, checkPickUp)
	look.HeartbeatTimeout, look.ScheduleToCloseTimeout = 0, checkEnd
	err := workflow.ExecuteActivity(withActivity(ctx, look, "look for what should be there"), serving.ActivityCheck,
		serving.CheckRequest{Expected: expected}).Get(ctx, &found)
	if err != nil {
		return err
	}
	for len(found.Gone) > 0 {
		id, n := found.Gone[0].ID, 1
		for n < len(found.Gone) && found.Gone[n].ID == id {
			n++
		}
		err := workflow.ExecuteActivity(withActivity(ctx, centreForever, "write what is missing"), serving.ActivityObserve,
			serving.ObserveRequest{ID: id, Observations: found.Gone[:n], At: workflow.Now(ctx)}).Get(ctx, nil)
		if err != nil {
			return err
		}
		found.Gone = found.Gone[n:]
	}
	return nil
}
