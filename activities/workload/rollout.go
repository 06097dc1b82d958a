package workload

import (
	"cmp"
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// Begin claims a workload for a rollout and saves what there is to save, in one write. It fails with Claimed when another release holds it,
// with Refused when it cannot be rolled out as it is, and as Move does.
func (a *Activities) Begin(ctx context.Context, req rollout.BeginRequest) (rollout.BeginResult, error) {
	return a.BeginMoving(ctx, req, func(rollout.BeginResult) *rollout.MoveRequest { return nil })
}

// BeginMoving is Begin whose write makes the first of the Move as well that follows at once (pods.BeginMoving): first says which Move that is, nil when something
// else comes next. Its failures are those of Begin: if the cluster refuses that write the claim is taken alone, and the Move fails.
func (a *Activities) BeginMoving(ctx context.Context, req rollout.BeginRequest,
	first func(rollout.BeginResult) *rollout.MoveRequest) (rollout.BeginResult, error) {
	d, err := a.rollout(ctx, req.Subject, req.Strategy.Style, func(t *rolloutJob) {
		t.beginning, t.change = true, req.Change
		t.decide = func(seen pods.Observed) pods.NextAction {
			if t.apart {
				return pods.Begin(t.tech, req, seen)
			}
			return pods.BeginMoving(t.tech, req, seen, first)
		}
	})
	if err != nil || d.Begun == nil {
		a.events.failed(lookOf(ctx).known, releaseOf(req.Claim), err)
		return rollout.BeginResult{}, err
	}
	a.events.tell(lookOf(ctx).known, corev1.EventTypeNormal, eventBegan, releaseOf(req.Claim)+" has begun")
	return *d.Begun, nil
}

// Move brings a step's number of pods to the new version. It fails with WorkloadFailed (its data are rollout.MoveResult), Drift, Gone,
// ClaimLost, Refused, Unreachable or Forbidden; NotReady is to be tried again. With WorkloadFailed, Drift or Refused the workload has been
// brought to rest before.
func (a *Activities) Move(ctx context.Context, req rollout.MoveRequest) (rollout.MoveResult, error) {
	d, err := a.rollout(ctx, req.Subject, req.Style, func(t *rolloutJob) {
		t.change, t.template, t.wantsNew, t.halting, t.foreseen = req.Change, req.Template, true, req.Halt, req.Foreseen
		t.passing = !req.Rest && !req.Halt && !req.Look
		t.decide = func(seen pods.Observed) pods.NextAction { return pods.Move(t.tech, req, seen) }
		if !req.Halt {
			halted := req
			halted.Halt = true
			t.halt = func(seen pods.Observed) pods.NextAction { return pods.Move(t.tech, halted, seen) }
		}
	})
	a.rested(ctx, req, d.Numbers, err)
	return d.Numbers, err
}

// Finish makes one move of finalising; its failures are those of Move.
func (a *Activities) Finish(ctx context.Context, req rollout.FinishRequest) (rollout.MoveResult, error) {
	d, err := a.rollout(ctx, req.Subject, "", func(t *rolloutJob) {
		t.change, t.template, t.wantsNew, t.foreseen = req.Change, req.Template, req.To == rollout.SideNew, req.Foreseen
		t.orphans = req.Action == rollout.FinishAutoscalers
		t.decide = func(seen pods.Observed) pods.NextAction { return pods.Finish(t.tech, req, seen) }
	})
	a.finished(ctx, req, err)
	return d.Numbers, err
}

// rolloutJob carries out one of a rollout's activities.
type rolloutJob struct {
	job
	subject rollout.Subject
	style   strategy.Style
	tech    pods.Technique
	decide  func(pods.Observed) pods.NextAction
	// halt brings the workload to rest before the activity fails, with failed; nil: it leaves nothing that would have to rest.
	halt   func(pods.Observed) pods.NextAction
	failed *failure.Error
	// beginning: the workload is not yet ours.
	beginning bool
	// apart says that the claim is taken by a write of its own, since the cluster does not take it together with the first of the Move.
	apart bool
	// change makes the new template, whose digest is template once the workflow knows it; wantsNew says that the activity has to know it.
	change   strategy.Change
	template string
	wantsNew bool
	// passing says that the activity ends without a write of its own, and that what comes next looks by itself.
	passing bool
	// foreseen is the new template as it was found before the rollout; nil where it is not known.
	foreseen *rollout.Foreseen
	// halting says that what cannot be known of the new template is not needed: a workload that does not take it has no pods of it.
	halting bool
	// orphans: the workload was deleted, and only its autoscalers are seen to.
	orphans bool
	// expected and expectedTemplate are the answer of the dry run.
	expected         string
	expectedTemplate map[string]any

	// lastTold is what the workload told at the last look.
	lastTold lastTold
	// byWatch says that the last look went by what the watches had told.
	byWatch bool
	scalers map[string]*unstructured.Unstructured
	duel    duel
	// end is the decision that the activity ends with.
	end pods.NextAction
}

// rollout carries out an activity, of which prepare says what there is to do, and returns the decision that it ends with. Style "" is that
// of what is saved on the workload.
func (a *Activities) rollout(ctx context.Context, s rollout.Subject, style strategy.Style,
	prepare func(*rolloutJob)) (pods.NextAction, error) {
	t, err := a.rolloutJob(ctx, s, style)
	if err != nil {
		return pods.NextAction{}, attempt.ApplicationError(err)
	}
	prepare(t)
	t.tech = pods.Under(t.tech, t.change.Declared != nil)
	if s.Workload.WorkloadRef.Kind == workloadops.KindDeployment {
		t.follow(strategy.CanarySuffix)
	} else {
		t.follow()
	}
	defer t.sub.leave()
	if !t.tech.ByPods() {
		defer a.notifier.revisions.use(t.kind, s.Workload.Namespace)()
	}
	if err := t.Run(ctx, t); err != nil {
		return pods.NextAction{}, err
	}
	return t.end, nil
}

// rolloutJob begins an attempt.
func (a *Activities) rolloutJob(ctx context.Context, s rollout.Subject, style strategy.Style) (*rolloutJob, error) {
	k, known := kindOf(s.Workload.WorkloadRef)
	switch {
	case !known:
		return nil, failure.New(failure.Refused, "%s of %s cannot be rolled out", s.Workload, s.Workload.WorkloadRef.APIVersion)
	case !a.cluster.Serves(s.Workload.Namespace):
		return nil, failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", s.Workload, s.Workload.Namespace)
	}
	first := cmp.Or(style, strategy.StylePartition)
	tech, ok := pods.TechniqueOf(s.Workload.WorkloadRef, first)
	if !ok {
		return nil, failure.New(failure.Refused, "%s cannot be rolled out in the style %s", s.Workload, first)
	}
	terms := attempt.Terms{DeadlineSeconds: s.DeadlineSeconds, SpentSeconds: s.SpentSeconds,
		UnreachableBudgetSeconds: s.UnreachableBudgetSeconds}
	return &rolloutJob{job: a.job(ctx, s.Workload, k, terms), subject: s, style: style, tech: tech}, nil
}

// Missing is the failure of a workload that is not there.
func (t *rolloutJob) Missing(error) error {
	if t.beginning {
		return failure.New(failure.NotFound, "%s does not exist: create it first", t.subject.Workload)
	}
	return failure.New(failure.Gone, "%s was deleted by somebody else in the middle of the rollout", t.subject.Workload)
}

// Failed has an activity that fails bring its workload to rest first: from its answer on nobody moves it on until somebody has decided. Of
// a workload that does not let itself be brought to rest it answers what came first.
func (t *rolloutJob) Failed(_ context.Context, f *failure.Error) *failure.Error {
	if t.failed != nil && f.Kind == failure.Refused {
		return t.failed
	}
	if t.halt == nil || t.failed != nil {
		return f
	}
	switch f.Kind {
	case failure.WorkloadFailed, failure.Drift, failure.Refused:
	default: // it is not ours any more, or it is tried again
		return f
	}
	t.failed, t.decide, t.halting, t.rejected = f, t.halt, true, ""
	return nil
}

// Reconcile takes one look and does what is decided.
func (t *rolloutJob) Reconcile(ctx context.Context) (attempt.Next, error) {
	l, d, err := t.look(ctx)
	if err != nil {
		return attempt.Next{}, err
	}
	t.count(d)
	switch d.Action {
	case workloadops.ActWrite:
		return t.writes(ctx, l, d)
	case workloadops.ActDelete:
		return attempt.Next{}, t.deletes(ctx, l, d.Delete)
	case pods.ActExtra:
		return attempt.Next{}, t.changeExtra(ctx, l, d.Extra)
	case pods.ActNumber:
		if err := t.number(ctx, d.Number); err != nil || !d.Ends {
			return attempt.Next{}, err
		}
	case pods.ActAutoscaler:
		return attempt.Next{}, t.changeAutoscaler(ctx, d.Autoscaler)
	case workloadops.ActWait: // where numbers are counted from the pods, those may get ready without a change of the workload
		return t.wait(d.Reason, t.tech.ByPods()), nil
	}
	return t.ends(d)
}

// count tells how far it is. While pods come, nobody has to ask them what keeps them.
func (t *rolloutJob) count(d pods.NextAction) {
	comes := false
	t.Note(func(p *workloadops.Progress) {
		p.Message = d.Reason
		if n := d.Numbers; n.Replicas > 0 {
			comes = p.UpdatedReady != nil && (*p.Updated != n.Updated || *p.UpdatedReady != n.UpdatedReady)
			if p.Updated, p.UpdatedReady = &n.Updated, &n.UpdatedReady; comes {
				p.MovedSeconds = p.ElapsedSeconds
			}
		}
	})
	if comes {
		t.Moved()
	}
	if comes && d.LookAgain == 0 {
		t.lookLater()
	}
}

// deletes takes pods for as long as the workload is as it was seen: who has changed it since may have let its own controller take pods, too.
func (t *rolloutJob) deletes(ctx context.Context, l *snapshot, list []workloadops.Pod) error {
	for _, p := range list {
		now, err := t.get(ctx)
		if err != nil || now.GetGeneration() != l.object.GetGeneration() {
			return err
		}
		if err := t.deletePods(ctx, []workloadops.Pod{p}, "rollout.pod.delete.before", "rollout.pod.delete.after"); err != nil {
			return err
		}
	}
	return nil
}

// writes makes one write on the workload, which may end the activity.
func (t *rolloutJob) writes(ctx context.Context, l *snapshot, d pods.NextAction) (attempt.Next, error) {
	if d.Ends && d.Write.Release {
		if err := t.announce(ctx, d); err != nil {
			return attempt.Next{}, err
		}
	}
	after, err := t.write(ctx, l, d.Write)
	moves := d.Begun != nil && d.Begun.Placed
	if moves && refused(err) {
		t.apart, t.rejected = true, ""
		return attempt.Next{}, nil
	}
	if after != nil {
		t.last.known = after
		if d.Begun != nil && l != nil && !moves { // the claim alone changes nothing of its revisions
			t.last.revisions = l.kept
		}
	}
	if d.Ends && after != nil {
		d.Numbers.Generation = after.GetGeneration() // as its own write has left it
		if moves {
			d.Begun.Generation = after.GetGeneration()
		}
		return t.ends(d)
	}
	if after != nil {
		t.duel.wrote(fieldsOf(t.plain(after), t.tech), after)
	}
	return attempt.Next{}, err
}

// refused says whether a write was not made since it may not be made, rather than since it came too late or nobody answered.
func refused(err error) bool {
	return failure.Is(err, failure.Refused) || err != nil && kube.Classify(err) == kube.Refused
}

// ends ends the activity with a decision; one that was brought to rest fails with what came first.
func (t *rolloutJob) ends(d pods.NextAction) (attempt.Next, error) {
	switch {
	case d.Failure != nil:
		return attempt.Next{}, d.Failure
	case t.failed != nil:
		return attempt.Next{}, t.failed
	}
	t.end = d
	return attempt.Next{Action: attempt.Done}, nil
}

// look reads the world and decides, asking the pods when it is time to or when the decision needs them.
func (t *rolloutJob) look(ctx context.Context) (*snapshot, pods.NextAction, error) {
	if t.orphans {
		return t.lookAtOrphans(ctx)
	}
	if t.last.revisions == nil {
		if l, d, told := t.asTold(ctx); told {
			t.byWatch = true
			return l, d, nil
		}
	}
	t.byWatch = false
	l, err := t.live(ctx)
	if err == nil {
		err = t.complete(ctx, l)
	}
	if err != nil {
		return nil, pods.NextAction{}, err
	}
	before := t.take(l)
	if done := answered(before); done != nil && l.seen.Claim != t.subject.Claim {
		// The claim was given back with the last write of this very activity; only its answer was not heard.
		return l, *done, nil
	}
	if t.tech.ByPods() || !t.Now().Before(t.nextLook) {
		t.lookLater()
		if err := t.withPods(ctx, l); err != nil {
			return nil, pods.NextAction{}, err
		}
	}
	d := t.decide(l.seen)
	if d.Action == workloadops.ActLook {
		if err := t.withPods(ctx, l); err != nil {
			return nil, pods.NextAction{}, err
		}
		d = t.decide(l.seen)
	}
	if d.Failure != nil && d.Failure.Kind == failure.Drift && !t.beginning && l.seen.Duel.Times <= rollout.MostDisturbed {
		d.Failure.Message += t.edited(l)
		d.Reason = d.Failure.Message
	}
	if d.LookAgain > 0 {
		t.lookWithin(d.LookAgain)
	}
	return l, d, nil
}

// take makes what was looked at complete by what the attempt knows itself, and answers what it knew before.
func (t *rolloutJob) take(l *snapshot) (before workloadops.Progress) {
	t.choose(l)
	l.seen.Duel = t.duel.seen(fieldsOf(l.seen, t.tech), l.object)
	before = t.Progress()
	t.Read()
	l.seen.Elapsed, l.seen.Still, l.seen.HeldUp = before.Elapsed(), before.Still(), t.takeHeldUp()
	return before
}

// choose takes the technique of the style that is saved on the workload, once there is something saved.
func (t *rolloutJob) choose(l *snapshot) {
	if t.beginning || l.seen.Saved == nil {
		return
	}
	if tech, ok := pods.TechniqueOf(t.subject.Workload.WorkloadRef, l.seen.Saved.Style); ok {
		t.tech = pods.Under(tech, l.seen.Saved.Declared != "")
		l.seen.Settings = t.told(l.object).Settings
	}
}

// announce puts the answer on record: once the claim is given back, nothing on the workload tells what was done.
func (t *rolloutJob) announce(ctx context.Context, d pods.NextAction) error {
	raw, err := json.Marshal(d.Numbers)
	if err != nil {
		return err
	}
	t.Note(func(p *workloadops.Progress) { p.Data = raw })
	return t.Record(ctx)
}

// answered is what an attempt of before was about to answer when it gave the claim back; nil when it was not.
func answered(p workloadops.Progress) *pods.NextAction {
	if len(p.Data) == 0 {
		return nil
	}
	d := pods.NextAction{}
	if json.Unmarshal(p.Data, &d.Numbers) != nil {
		return nil
	}
	d.Action, d.Reason = workloadops.ActDone, d.Numbers.Message
	return &d
}
