package workflows

import (
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/source"
)

// PackageSweepInput starts a PackageSweep.
type PackageSweepInput struct {
	Party string `json:"party"`
	Queue string `json:"queue"`
}

const (
	// sweepEvery is how long a sweep stays open after its work, or less if packages are kept for less. Items of the
	// party that end meanwhile need no further sweep.
	sweepEvery = 10 * time.Minute
	// sweepTimeout is how long a sweep tries to reach a party; the next item's sweep tries again.
	sweepTimeout = time.Minute
)

// PackageSweep deletes packages from a party's store that no pod template, old revision or record names any more. It is
// started after an item that used the store; nothing waits for it.
func PackageSweep(ctx workflow.Context, in PackageSweepInput) (source.Removed, error) {
	var removed source.Removed
	if refusal := checkOrigin(ctx, origin.Request{ParentType: TypeServiceRelease}, false); refusal != "" {
		return removed, errOrigin(refusal)
	}
	wait := sweepEvery
	for after := ""; ; {
		seen, err := sweepRound(ctx, in, after, &removed)
		if err != nil {
			return removed, err
		}
		if seen.KeepSeconds > 0 {
			wait = min(wait, time.Duration(seen.KeepSeconds)*time.Second)
		}
		if after = seen.Next; after == "" || historyIsLong(ctx) {
			break
		}
	}
	return removed, sleep(ctx, wait, "before the party's store may be swept again")
}

// sweepRound deletes the next packages. unnamed.Next is where the following round continues.
func sweepRound(ctx workflow.Context, in PackageSweepInput, after string,
	removed *source.Removed) (unnamed source.Unreferenced, err error) {
	atParty, atCentre := partyQuery(in.Queue, sweepTimeout), centreWithin(sweepTimeout)
	var unrecorded source.Unreferenced
	err = perform(withActivity(ctx, atParty, "find packages that nothing in the cluster names"), source.ActivityUnnamed,
		source.UnreferencedRequest{After: after}, &unnamed)
	if err != nil || len(unnamed.SHA256) == 0 {
		return unnamed, err
	}
	err = perform(withActivity(ctx, atCentre, fmt.Sprintf("find which of %d packages no record names",
		len(unnamed.SHA256))), source.ActivityUnrecorded, unnamed, &unrecorded)
	if err != nil || len(unrecorded.SHA256) == 0 {
		return unnamed, err
	}
	var deleted source.Removed
	err = perform(withActivity(ctx, atParty, fmt.Sprintf("remove %d packages", len(unrecorded.SHA256))),
		source.ActivityRemove, unrecorded, &deleted)
	removed.Packages += deleted.Packages
	return unnamed, err
}

// PackageSweepID is the ID of the workflow that sweeps a party's store: one at a time.
func PackageSweepID(party string) string { return "package-sweep/" + party }

// sweep starts a sweep of each party's store that has the package, unless one is in progress.
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
			StaticSummary:         "remove packages that party " + party + " no longer needs",
		}), TypePackageSweep, PackageSweepInput{Party: party, Queue: order.Queue})
		err := child.GetChildWorkflowExecution().Get(r.ctx, nil)
		if err != nil && !temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			workflow.GetLogger(r.ctx).Warn("could not start a sweep of the package store", "party", party, "error", err)
		}
	}
}
