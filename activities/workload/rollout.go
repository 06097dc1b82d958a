package workload

import (
	"cmp"
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// Begin claims a workload for a rollout and saves its original state, in one write. It fails with Claimed when another
// release holds it, with Refused when its current state does not allow a rollout, and as Move does.
func (a *Activities) Begin(ctx context.Context, req rollout.BeginRequest) (rollout.BeginResult, error) {
	return a.BeginMoving(ctx, req, func(rollout.BeginResult) *rollout.MoveRequest { return nil })
}

// BeginMoving is Begin whose write also makes the first write of the Move that follows at once (pods.BeginWithMove):
// first returns that Move, nil when the next action is not a Move. Its failures are those of Begin: if the cluster
// refuses the combined write, the claim is taken alone, and the Move fails.
func (a *Activities) BeginMoving(ctx context.Context, req rollout.BeginRequest,
	first func(rollout.BeginResult) *rollout.MoveRequest) (rollout.BeginResult, error) {
	d, err := a.rollout(ctx, req.Subject, req.Strategy.Style, func(t *rolloutJob) {
		t.beginning, t.change, t.addedMetadata = true, req.Change, req.Strategy.PatchPodTemplateMetadata
		t.served = req.Served
		t.decide = func(seen pods.Observed) pods.NextAction {
			if t.claimAlone {
				return pods.Begin(t.tech, req, seen)
			}
			return pods.BeginWithMove(t.tech, req, seen, first)
		}
	})
	a.events.record(lastReadOf(ctx).known, req.Claim, eventBegan, " has started", err)
	return ptr.Deref(d.Begun, rollout.BeginResult{}), err
}

// Move brings a step's number of pods to the new version. It fails with WorkloadFailed (its data are
// rollout.MoveResult), Drift, Gone, ClaimLost, Refused, Unreachable or Forbidden; NotReady is retried. Before it fails
// with WorkloadFailed, Drift or Refused it has stopped the workload's pods from moving.
func (a *Activities) Move(ctx context.Context, req rollout.MoveRequest) (rollout.MoveResult, error) {
	d, err := a.rollout(ctx, req.Subject, req.Style, func(t *rolloutJob) {
		t.change, t.template, t.wantsNew, t.halting, t.foreseen = req.Change, req.Template, true, req.Halt,
			req.Predicted
		t.endsOnCache = !req.Settle && !req.Halt && !req.Inspect
		t.decide = func(seen pods.Observed) pods.NextAction { return pods.Move(t.tech, req, seen) }
		if !req.Halt {
			halted := req
			halted.Halt = true
			t.halt = func(seen pods.Observed) pods.NextAction { return pods.Move(t.tech, halted, seen) }
		}
	})
	message := ""
	switch {
	case d.Numbers.Stuck != "":
		a.reportBlocked(ctx, lastReadOf(ctx).known, req.Claim, d.Numbers.Stuck)
	case req.Settle && !req.Halt:
		message = ": " + d.Numbers.Message
	}
	a.events.record(lastReadOf(ctx).known, req.Claim, eventRests, message, err)
	return d.Numbers, err
}

// Finish takes one step of finalising; its failures are those of Move.
func (a *Activities) Finish(ctx context.Context, req rollout.FinishRequest) (rollout.MoveResult, error) {
	d, err := a.rollout(ctx, req.Subject, "", func(t *rolloutJob) {
		t.change, t.template, t.wantsNew, t.foreseen = req.Change, req.Template, req.To == rollout.SideNew,
			req.Predicted
		t.autoscalersOnly = req.Action == rollout.FinishAutoscalers
		t.decide = func(seen pods.Observed) pods.NextAction { return pods.Finish(t.tech, req, seen) }
	})
	req.To = cmp.Or(d.Numbers.Released, req.To)
	a.events.record(lastReadOf(ctx).known, req.Claim, eventEnded, endOf(req), err)
	return d.Numbers, err
}

// rolloutJob carries out one of a rollout's activities.
type rolloutJob struct {
	job
	subject rollout.Subject
	style   strategy.Style
	tech    pods.Technique
	decide  func(pods.Observed) pods.NextAction
	// end is the decision with which the activity ends.
	end pods.NextAction
	// endsOnCache is true when the activity may end on cached data: it ends without a write, and the next action reads
	// again.
	endsOnCache bool
	// autoscalersOnly is true when the workload was deleted and only its autoscalers are restored.
	autoscalersOnly bool

	// beginning is true while the workload is not yet claimed. addedMetadata is then what an extra workload adds to the
	// pod template.
	beginning     bool
	addedMetadata *strategy.PodMetadata
	// served is the revision that a record calls Healthy; nil where that is not known.
	served *strategy.Revision
	// claimAlone is true when the claim is taken by a write of its own, because the cluster refused it together with
	// the first write of the Move.
	claimAlone bool

	// change makes the new template. template is its digest once the workflow knows it; wantsNew is true when the
	// activity needs it.
	change   strategy.Change
	template string
	wantsNew bool
	// foreseen is the new template as the preflight computed it; nil where it is not known.
	foreseen *rollout.PredictedTemplate
	// expected and expectedTemplate are the result of the dry run.
	expected         string
	expectedTemplate map[string]any

	// halt stops the pods before the activity fails with failed; nil: there is nothing to stop.
	halt   func(pods.Observed) pods.NextAction
	failed *failure.Error
	// halting is true while pods are stopped: an unknown new template is then no failure, because a workload that
	// rejects it has no pods of it.
	halting bool

	// lastObserved is the observation of the workload in the last round.
	lastObserved lastObserved
	// fromCache is true when the last round decided from the watch cache.
	fromCache bool
	scalers   map[string]*unstructured.Unstructured
	conflicts conflictCounter
}

// rollout carries out an activity, which prepare configures, and returns the decision with which it ends. Style "" is
// that of the state saved on the workload.
func (a *Activities) rollout(ctx context.Context, s rollout.Subject, style strategy.Style,
	prepare func(*rolloutJob)) (pods.NextAction, error) {
	t, err := a.rolloutJob(ctx, s, style)
	if err != nil {
		return pods.NextAction{}, attempt.ApplicationError(err)
	}
	prepare(t)
	t.tech = pods.ForDeclared(t.tech, t.change.Declared != nil)
	defer t.follow(strategy.CanarySuffix)()
	if !t.tech.CountsPods() {
		defer a.notifier.useRevisions(t.kind, s.Workload.Namespace)()
	}
	if err := t.Run(ctx, t); err != nil {
		return pods.NextAction{}, err
	}
	return t.end, nil
}

// rolloutJob starts an attempt.
func (a *Activities) rolloutJob(ctx context.Context, s rollout.Subject, style strategy.Style) (*rolloutJob, error) {
	switch {
	case !s.Workload.WorkloadRef.Lookup().Known():
		return nil, failure.New(failure.Refused, "%s of %s cannot be rolled out", s.Workload,
			s.Workload.WorkloadRef.APIVersion)
	case !a.cluster.Serves(s.Workload.Namespace):
		return nil, failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", s.Workload,
			s.Workload.Namespace)
	}
	first := cmp.Or(style, strategy.StylePartition)
	tech, ok := pods.TechniqueOf(s.Workload.WorkloadRef, first)
	if !ok {
		return nil, failure.New(failure.Refused, "%s cannot be rolled out in the style %s", s.Workload, first)
	}
	terms := attempt.Terms{DeadlineSeconds: s.DeadlineSeconds, SpentSeconds: s.SpentSeconds,
		UnreachableBudgetSeconds: s.UnreachableBudgetSeconds}
	return &rolloutJob{job: a.job(ctx, s.Workload, terms), subject: s, style: style, tech: tech}, nil
}

// Missing is the failure of a workload that does not exist.
func (t *rolloutJob) Missing(error) error {
	if t.beginning {
		return failure.New(failure.NotFound, "%s does not exist: create it first", t.subject.Workload)
	}
	return failure.New(failure.Gone, "%s was deleted by another client during the rollout", t.subject.Workload)
}

// Failed stops the workload's pods before the activity fails: after that, no activity moves them until a user has
// decided. If stopping fails too, the first failure is reported.
func (t *rolloutJob) Failed(_ context.Context, f *failure.Error) *failure.Error {
	if t.failed != nil && f.Kind == failure.Refused {
		return t.failed
	}
	if t.halt == nil || t.failed != nil {
		return f
	}
	switch f.Kind {
	case failure.WorkloadFailed, failure.Drift, failure.Refused:
	default: // it is no longer ours, or the failure is retried
		return f
	}
	t.failed, t.decide, t.halting, t.rejected = f, t.halt, true, ""
	return nil
}

// Reconcile reads once and carries out the decision.
func (t *rolloutJob) Reconcile(ctx context.Context) (attempt.Next, error) {
	l, d, err := t.readAndDecide(ctx)
	if err != nil {
		return attempt.Next{}, err
	}
	t.noteProgress(d)
	switch d.Action {
	case workload.ActWrite, workload.ActDelete, pods.ActExtra, pods.ActNumber, pods.ActAutoscaler:
		if err := t.requireListed(ctx); err != nil {
			return attempt.Next{}, err
		}
	}
	switch d.Action {
	case workload.ActWrite:
		return t.carryOutWrite(ctx, l, d)
	case workload.ActDelete:
		return attempt.Next{}, t.deleteStepPods(ctx, l, d.Delete)
	case pods.ActExtra:
		return attempt.Next{}, t.changeExtra(ctx, l, d.Extra)
	case pods.ActNumber:
		if err := t.labelPods(ctx, d.Number); err != nil || !d.Ends {
			return attempt.Next{}, err
		}
	case pods.ActAutoscaler:
		return attempt.Next{}, t.changeAutoscaler(ctx, d.Autoscaler)
	case workload.ActWait: // where pods are counted, they may get ready without a change of the workload
		return t.wait(d.Reason, t.tech.CountsPods()), nil
	}
	return t.endWith(d)
}

// noteProgress updates the progress. While pods become ready, it delays the check of what blocks them.
func (t *rolloutJob) noteProgress(d pods.NextAction) {
	advances := false
	t.Note(func(p *workload.Progress) {
		p.Message = d.Reason
		if n := d.Numbers; n.Replicas > 0 {
			advances = p.RecordPods(n.Updated, n.UpdatedReady)
		}
	})
	if advances {
		t.Progressed()
		if d.RecheckAfter == 0 {
			t.podCheckWithin(firstSharedPodCheck * t.LoadFactor())
		}
	}
}

// deleteStepPods deletes pods as long as the workload is unchanged: another client that has changed it may have let its
// own controller delete pods, too.
func (t *rolloutJob) deleteStepPods(ctx context.Context, l *snapshot, list []workload.Pod) error {
	for _, p := range list {
		now, err := t.get(ctx)
		if err != nil || now.GetGeneration() != l.object.GetGeneration() {
			return err
		}
		if err := t.deletePods(ctx, []workload.Pod{p}, "rollout.pod.delete.before",
			"rollout.pod.delete.after"); err != nil {
			return err
		}
	}
	return nil
}

// carryOutWrite makes one write on the workload, which may end the activity.
func (t *rolloutJob) carryOutWrite(ctx context.Context, l *snapshot, d pods.NextAction) (attempt.Next, error) {
	if d.Ends && d.Write.Release {
		// The result is recorded first: once the claim is released, nothing on the workload shows what was done.
		t.Note(func(p *workload.Progress) { p.Data = jsonpatch.Encode(d.Numbers) })
		if err := t.Record(ctx); err != nil {
			return attempt.Next{}, err
		}
	}
	after, err := t.write(ctx, l, d.Write)
	moves := d.Begun != nil && d.Begun.TemplateWritten
	if moves && (failure.Is(err, failure.Refused) || kube.IsAny(err, kube.Refused)) { // not just late or not answered
		t.claimAlone, t.rejected = true, ""
		return attempt.Next{}, nil
	}
	if after == nil {
		return attempt.Next{}, err
	}
	t.lastRead.known = after
	if d.Begun != nil && d.Write.Template == nil { // the claim alone does not affect its revisions
		t.lastRead.revisions = l.kept
	}
	if !d.Ends {
		t.conflicts.noteWrite(moveFields(t.observeObject(after), t.tech), after)
		return attempt.Next{}, nil
	}
	d.Numbers.Generation = after.GetGeneration() // after its own write
	if moves {
		d.Begun.Generation = after.GetGeneration()
	}
	return t.endWith(d)
}

// endWith ends the activity with a decision; if its pods were stopped after a failure, it fails with that failure.
func (t *rolloutJob) endWith(d pods.NextAction) (attempt.Next, error) {
	switch {
	case d.Failure != nil:
		return attempt.Next{}, d.Failure
	case t.failed != nil:
		return attempt.Next{}, t.failed
	}
	t.end = d
	return attempt.Next{Action: attempt.Done}, nil
}

// readAndDecide reads the cluster and decides. It reads the pods when their check is due or when the decision needs
// them.
func (t *rolloutJob) readAndDecide(ctx context.Context) (*snapshot, pods.NextAction, error) {
	if t.autoscalersOnly {
		return t.readAutoscalersOnly(ctx)
	}
	if t.lastRead.revisions == nil {
		if l, d, decided := t.decideFromCache(ctx); decided {
			t.fromCache = true
			return l, d, nil
		}
	}
	t.fromCache = false
	l, err := t.readLive(ctx)
	if err != nil {
		return nil, pods.NextAction{}, err
	}
	before := t.addProgress(l)
	if done := recordedResult(before); done != nil && l.seen.Claim != t.subject.Claim {
		// The last write of this very activity has released the claim; only its result was lost.
		return l, *done, nil
	}
	if t.tech.CountsPods() || !t.Now().Before(t.nextPodCheck) {
		t.delayPodCheck()
		if err := t.withPods(ctx, l); err != nil {
			return nil, pods.NextAction{}, err
		}
	}
	d := t.decide(l.seen)
	if d.Action == workload.ActReadPods {
		if err := t.withPods(ctx, l); err != nil {
			return nil, pods.NextAction{}, err
		}
		d = t.decide(l.seen)
	}
	if needsExplanation(d.NextAction) && l.seen.PodsSeen && t.explain(ctx, l, d.Numbers) {
		d = t.decide(l.seen)
	}
	if d.Failure != nil && d.Failure.Kind == failure.Drift && !t.beginning &&
		l.seen.EditConflict.Times <= rollout.MaxRestores {
		d.Failure.Message += t.describeEdit(l)
		d.Reason = d.Failure.Message
	}
	if d.RecheckAfter > 0 {
		t.podCheckWithin(d.RecheckAfter)
	}
	return l, d, nil
}

// addProgress adds the attempt's own progress to a snapshot, and returns the progress before.
func (t *rolloutJob) addProgress(l *snapshot) (before workload.Progress) {
	t.chooseTechnique(l)
	l.seen.EditConflict = t.conflicts.compare(moveFields(l.seen, t.tech), l.object)
	before = t.Progress()
	t.Read()
	l.seen.Elapsed, l.seen.StalledFor, l.seen.BlockedByBudget = before.Elapsed(), before.StalledFor(),
		t.takeBlockingBudget()
	return before
}

// chooseTechnique sets the technique of the style that is saved on the workload, once there is one.
func (t *rolloutJob) chooseTechnique(l *snapshot) {
	if t.beginning || l.seen.Saved == nil {
		return
	}
	if tech, ok := pods.TechniqueOf(t.subject.Workload.WorkloadRef, l.seen.Saved.Style); ok {
		t.tech = pods.ForDeclared(tech, l.seen.Saved.Declared != "")
		l.seen.Settings = t.observedOf(l.object).Settings
	}
}

// recordedResult is the result that an earlier attempt recorded before it released the claim; nil if none did.
func recordedResult(p workload.Progress) *pods.NextAction {
	if len(p.Data) == 0 {
		return nil
	}
	d := pods.NextAction{}
	if json.Unmarshal(p.Data, &d.Numbers) != nil {
		return nil
	}
	d.Action, d.Reason = workload.ActDone, d.Numbers.Message
	return &d
}
