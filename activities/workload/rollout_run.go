package workload

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// rolloutJob carries out one of a rollout's activities.
type rolloutJob struct {
	*attempt.Attempt
	a       *Activities
	subject rollout.Subject
	style   strategy.Style
	kind    kind
	tech    pods.Technique
	decide  func(pods.Observed) pods.NextAction
	// halt brings the workload to rest before the activity fails, with failed; nil: it leaves nothing that would have to rest.
	halt   func(pods.Observed) pods.NextAction
	failed *failure.Error
	// beginning: the workload is not yet ours.
	beginning bool
	// change makes the new template, whose digest is template once the workflow knows it; wantsNew says that the activity has to know it.
	change   strategy.Change
	template string
	wantsNew bool
	// halting says that what cannot be known of the new template is not needed: a workload that does not take it has no pods of it.
	halting bool
	// orphans: the workload was deleted, and only its autoscalers are seen to.
	orphans bool
	// expected and expectedTemplate are the answer of the dry run.
	expected         string
	expectedTemplate map[string]any

	sub subscription
	// nextLook is when it next asks the pods.
	nextLook time.Time
	scalers  map[string]*unstructured.Unstructured
	// rejected is the version on which the server did not accept a change.
	rejected string
	// end is the decision that the activity ends with.
	end pods.NextAction
}

// run carries out the activity and returns the decision that it ends with.
func (t *rolloutJob) run(ctx context.Context) (pods.NextAction, error) {
	ref, namespace := t.subject.Workload.WorkloadRef, t.subject.Workload.Namespace
	targets := []target{{pods.Key(ref), namespace, ref.Name}}
	if ref.Kind == workloadops.KindDeployment {
		targets = append(targets, target{pods.Key(ref), namespace, ref.Name + strategy.CanarySuffix})
	}
	t.sub = t.a.notifier.subscribe(targets...)
	defer t.sub.leave()
	if err := t.Run(ctx, t); err != nil {
		return pods.NextAction{}, err
	}
	return t.end, nil
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
	t.Note(func(p *workloadops.Progress) {
		p.Message = d.Reason
		if d.Numbers.Replicas > 0 {
			p.Updated, p.UpdatedReady = &d.Numbers.Updated, &d.Numbers.UpdatedReady
		}
	})
	switch d.Action {
	case workloadops.ActWrite:
		return t.writes(ctx, l, d)
	case workloadops.ActDelete:
		return attempt.Next{}, t.a.deletePods(ctx, t.subject.Workload.Namespace, d.Delete, "rollout.pod.delete.before",
			"rollout.pod.delete.after")
	case pods.ActExtra:
		return attempt.Next{}, t.changeExtra(ctx, l, d.Extra)
	case pods.ActAutoscaler:
		return attempt.Next{}, t.changeAutoscaler(ctx, d.Autoscaler)
	case workloadops.ActWait:
		return t.wait(d), nil
	}
	return t.ends(d)
}

// writes makes one write on the workload, which may end the activity.
func (t *rolloutJob) writes(ctx context.Context, l *snapshot, d pods.NextAction) (attempt.Next, error) {
	if d.Ends && d.Write.Release {
		if err := t.announce(ctx, d); err != nil {
			return attempt.Next{}, err
		}
	}
	before := t.rejected
	if err := t.write(ctx, l, d.Write); err != nil {
		return attempt.Next{}, err
	}
	if d.Ends && before == t.rejected {
		return t.ends(d)
	}
	return attempt.Next{}, nil
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
	l, err := t.observe(ctx)
	if err != nil {
		return nil, pods.NextAction{}, err
	}
	t.choose(l)
	now := t.Now()
	before := t.Progress()
	t.Read()
	l.seen.Elapsed = before.Elapsed()
	if done := answered(before); done != nil && l.seen.Claim != t.subject.Claim {
		// The claim was given back with the last write of this very activity; only its answer was not heard.
		return l, *done, nil
	}
	if t.tech.ByPods() || !now.Before(t.nextLook) {
		t.nextLook = earlier(t.Until(), now.Add(lookEvery))
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
	if d.Failure != nil && d.Failure.Kind == failure.Drift {
		d.Failure.Message += t.edited(l)
		d.Reason = d.Failure.Message
	}
	if d.LookAgain > 0 {
		t.nextLook = earlier(t.Until(), now.Add(d.LookAgain))
	}
	return l, d, nil
}

// choose takes the technique of the style that is saved on the workload, once there is something saved.
func (t *rolloutJob) choose(l *snapshot) {
	if t.beginning || l.seen.Saved == nil {
		return
	}
	if tech, ok := pods.TechniqueOf(t.subject.Workload.WorkloadRef, l.seen.Saved.Style); ok {
		t.tech = tech
		l.seen.Settings = t.plain(l.object).Settings
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

// wait waits for a change of the workload or of its extra workload. Where numbers are counted from the pods, those may get ready without
// such a change.
func (t *rolloutJob) wait(d pods.NextAction) attempt.Next {
	return attempt.Next{Action: attempt.Wait, Reason: d.Reason, Within: t.sub.within(t.Now(), t.nextLook, t.tech.ByPods()),
		Listen: func(context.Context) (<-chan struct{}, error) { return t.sub.wake, nil }}
}
