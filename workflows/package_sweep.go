package workflows

import (
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/source"
)

// PackageSweepInput starts a PackageSweep.
type PackageSweepInput struct {
	Party string `json:"party"`
	Queue string `json:"queue"`
}

const (
	// sweepEvery is how long a sweep stays open after its work, less where packages are kept for less: other items of the party that end
	// meanwhile need no sweep of their own.
	sweepEvery = 10 * time.Minute
	// sweepPatience is how long a sweep tries to reach a party: the next item's sweep does the same again.
	sweepPatience = time.Minute
)

// PackageSweep takes packages out of a party's store that no pod template, old revision or record names any more. It is started after an item
// that has used the store; nothing waits for it.
func PackageSweep(ctx workflow.Context, in PackageSweepInput) (source.Removed, error) {
	var removed source.Removed
	rest := sweepEvery
	for after := ""; ; {
		seen, err := sweepRound(ctx, in, after, &removed)
		if err != nil {
			return removed, err
		}
		if seen.KeepSeconds > 0 {
			rest = min(rest, time.Duration(seen.KeepSeconds)*time.Second)
		}
		if after = seen.Next; after == "" || historyIsLong(ctx) {
			break
		}
	}
	pause := workflow.TimerOptions{Summary: "before the party's store may be swept again"}
	return removed, workflow.NewTimerWithOptions(ctx, rest, pause).Get(ctx, nil)
}

// sweepRound takes the next packages, and says where the following round goes on.
func sweepRound(ctx workflow.Context, in PackageSweepInput, after string, removed *source.Removed) (unnamed source.Unnamed, err error) {
	atParty, atCentre := partyLook(in.Queue, sweepPatience), centreWithin(sweepPatience)
	var unrecorded source.Unnamed
	err = perform(withActivity(ctx, atParty, "which packages does nothing in the cluster name?"), source.ActivityUnnamed,
		source.UnnamedRequest{After: after}, &unnamed)
	if err != nil || len(unnamed.SHA256) == 0 {
		return unnamed, err
	}
	err = perform(withActivity(ctx, atCentre, fmt.Sprintf("which of %d packages does no record name?", len(unnamed.SHA256))),
		source.ActivityUnrecorded, unnamed, &unrecorded)
	if err != nil || len(unrecorded.SHA256) == 0 {
		return unnamed, err
	}
	var gone source.Removed
	err = perform(withActivity(ctx, atParty, fmt.Sprintf("remove %d packages", len(unrecorded.SHA256))), source.ActivityRemove, unrecorded, &gone)
	removed.Packages += gone.Packages
	return unnamed, err
}

// PackageSweepID is the workflow that sweeps a party's store: one at a time.
func PackageSweepID(party string) string { return "package-sweep/" + party }

// sweep starts a sweep of each party's store that has the package. One that is under way already is as good.
func (r *itemRun) sweep() {
	asked := map[string]bool{}
	for _, order := range r.orders {
		party := order.Request.Workload.PartyOrDefault()
		if r.fetched == nil || !r.fetched.Stored || asked[party] {
			continue
		}
		asked[party] = true
		child := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(r.ctx, workflow.ChildWorkflowOptions{
			WorkflowID: PackageSweepID(party), TaskQueue: QueueEngine, ParentClosePolicy: parentClosePolicy,
			WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
			StaticSummary:         "packages that party " + party + " needs no more",
		}), TypePackageSweep, PackageSweepInput{Party: party, Queue: order.Queue})
		err := child.GetChildWorkflowExecution().Get(r.ctx, nil)
		if err != nil && !temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			workflow.GetLogger(r.ctx).Warn("the package store is not swept", "party", party, "error", err)
		}
	}
}
