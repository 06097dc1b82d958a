package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// fieldManager owns the fields that the controller writes, markManager the marks of workloads without a release: a mark
// says nothing about when a release last wrote the pod template (fieldmanager.Last).
const fieldManager, markManager = fieldmanager.Slipway, "slipway-gate"

// reconcile executes the next action for an object, and returns when to check it again without a change.
func (c *Controller) reconcile(ctx context.Context, name cache.ObjectName) (again time.Duration, err error) {
	r := c.rollouts.Get(name.Namespace, name.Name)
	if r == nil {
		c.memories.forget(name)
		return 0, nil
	}
	known := c.memories.of(name)
	if unseen := known.unseen(r, time.Now()); unseen > 0 {
		return unseen, nil
	}
	engine, err := c.home.Engine(ctx)
	if err != nil {
		return 0, err
	}
	if ours, err := c.ours(ctx, engine, r); !ours || err != nil {
		return 0, err
	}
	w, err := c.workloads.named(ctx, r)
	if err != nil {
		return 0, err
	}
	if removed, err := c.removeCopy(ctx, w); removed || err != nil {
		return removedCopyInterval, err
	}
	now := time.Now()
	refused, retryAt := known.refused(r, w, now)
	unchecked, err := c.unchecked(ctx, r)
	if err != nil {
		return 0, err
	}
	snapshot := kruise.Snapshot{Object: r, Workload: w, Strays: c.workloads.strays(r), Extra: c.workloads.extra(w),
		Refused: refused, RetryAt: retryAt, Unchecked: unchecked, Now: now}
	next := kruise.Decide(snapshot)
	if !next.At.IsZero() {
		again = max(next.At.Sub(now), time.Millisecond)
	}
	if next.Kind == kruise.DoNothing {
		return again, c.checkLost(ctx, r)
	}
	if passedOn := known.recentlySent(next.Key, now); passedOn > 0 {
		return passedOn, nil
	}
	if leaves, err := c.leavesAlone(ctx, r, w, next, refused); leaves || err != nil {
		return otherControllerInterval, err
	}
	if next.Kind == kruise.DoReport {
		return again, failure.Ignore(c.report(ctx, snapshot), failure.Conflict, failure.NotFound)
	}
	if next, err = c.attribute(ctx, r, next); err != nil {
		return 0, err
	}
	// The watch delivers the change of another client.
	return again, failure.Ignore(c.act(ctx, r, next, engine), failure.Conflict, failure.NotFound)
}

func (c *Controller) memoryOf(r *v1beta1.Rollout) *memory {
	return c.memories.of(cache.MetaObjectToName(r))
}

// namespaceTTL is how long the labels of a namespace are cached.
const namespaceTTL = time.Minute

// ours reports whether this engine manages an object. An object without an engine is any engine's, unless its namespace
// names another one.
func (c *Controller) ours(ctx context.Context, engine workload.Engine, r *v1beta1.Rollout) (bool, error) {
	ours, named := kruise.Manages(engine, r)
	if named {
		return ours, nil
	}
	labels, err := recent.Get(ctx, &c.namespaces, r.Namespace, namespaceTTL,
		func(ctx context.Context) (map[string]string, error) { return c.home.NamespaceLabels(ctx, r.Namespace) })
	name := labels[kruise.KeyEngine]
	return name == "" || name == engine.Name, err
}

// act executes one action. The process may die before and after it.
func (c *Controller) act(ctx context.Context, r *v1beta1.Rollout, next kruise.NextAction,
	engine workload.Engine) error {
	what := string(next.Kind)
	if next.Status != nil {
		what += string(next.Status.Phase)
	}
	failpoint.Hit("controller." + what + ".before")
	err := c.do(ctx, r, next, engine)
	if err == nil {
		failpoint.Hit("controller." + what + ".after")
	}
	return err
}

func (c *Controller) do(ctx context.Context, r *v1beta1.Rollout, next kruise.NextAction, engine workload.Engine) error {
	switch next.Kind {
	case kruise.DoAddFinalizer:
		return c.home.GuardRollout(ctx, r, kruise.EngineText(engine))
	case kruise.DoRemoveFinalizer:
		return c.home.GuardRollout(ctx, r, "")
	case kruise.DoWriteHash:
		return c.home.AnnotateRollout(ctx, r, kruise.AnnotationHash, kruise.StrategyHash(r.Spec.Strategy))
	case kruise.DoWriteStatus:
		return c.show(ctx, r, *next.Status)
	case kruise.DoMark:
		return c.patchAs(ctx, markManager, next.Workload, types.MergePatchType, kruise.MarkPatch(r.Name,
			next.Workload.Ref.Kind))
	case kruise.DoUnhold, kruise.DoUnmark:
		return c.releaseHold(ctx, next.Workload, next.Kind == kruise.DoUnmark)
	case kruise.DoStart, kruise.DoSupersede:
		return c.begin(ctx, r, next)
	case kruise.DoCommand:
		return c.send(ctx, r, next.Command, next.Key, nil)
	case kruise.DoReplan:
		return c.replan(ctx, r, next)
	}
	return fmt.Errorf("unknown action %q for a Rollout", next.Kind)
}

func (c *Controller) show(ctx context.Context, r *v1beta1.Rollout, status v1beta1.RolloutStatus) error {
	now, err := c.home.SetRolloutStatus(ctx, r, status)
	if err == nil {
		if warning := kruise.IsUnchecked(status); warning != kruise.IsUnchecked(r.Status) {
			c.warnings.unchecked(referenceTo(r), warning)
		}
		c.memoryOf(now).wrote(now, time.Now())
	}
	return err
}

func (c *Controller) patch(ctx context.Context, w *kruise.Workload, kind types.PatchType, patch any) error {
	return c.patchAs(ctx, fieldManager, w, kind, patch)
}

func (c *Controller) patchAs(ctx context.Context, manager string, w *kruise.Workload, kind types.PatchType,
	patch any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = c.objects.Resource(w.Ref.Lookup().Resource).Namespace(w.Namespace).Patch(ctx, w.Name, kind, body,
		metav1.PatchOptions{FieldManager: manager})
	return err
}

// releaseHold restores the fields that hold a workload. It reads the workload first, since the watch caches no spec.
// Unless permanently is set, it releases only the template that was seen: a version declared since waits for its
// release.
func (c *Controller) releaseHold(ctx context.Context, seen *kruise.Workload, permanently bool) error {
	found, err := c.objects.Resource(seen.Ref.Lookup().Resource).Namespace(seen.Namespace).Get(ctx, seen.Name,
		metav1.GetOptions{})
	if err != nil {
		return ignoreStale(err)
	}
	w := kruise.ReadWorkload(found)
	if !permanently && w.Template != seen.Template {
		return nil // another change is held now: the watch delivers it
	}
	if w.HeldProblem != "" {
		return fmt.Errorf("%s %s/%s: %s", w.Ref.Kind, w.Namespace, w.Name, w.HeldProblem)
	}
	if w.Claim != "" {
		w.Held = nil // the release owns it
	}
	return ignoreStale(c.patch(ctx, w, types.JSONPatchType, kruise.UnholdPatch(w, permanently, found)))
}

func ignoreStale(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // deleted or changed since: the watch delivers it
	}
	return err
}

// begin starts a release, or one that supersedes another. The object shows a refusal.
func (c *Controller) begin(ctx context.Context, r *v1beta1.Rollout, next kruise.NextAction) error {
	if next.Kind == kruise.DoStart { // a superseding release continues one in progress
		other, err := c.otherController.check(ctx, c.options.OtherController)
		if err != nil {
			return err
		}
		if other.Message != "" {
			c.refuse(r, next.Workload, other.Message)
			return nil
		}
	}
	unchecked, err := c.unchecked(ctx, r)
	if err != nil {
		return err
	}
	if unchecked != "" && c.options.RequireGate && next.Kind == kruise.DoStart {
		c.refuse(r, next.Workload, author.Refusal(unchecked))
		return nil
	}
	spec, warnings, err := kruise.SpecOf(r)
	if err != nil {
		c.refuse(r, next.Workload, err.Error())
		return nil
	}
	spec.Change = strategy.Change{Declared: &next.Declared}
	if id := next.Workload.RolloutID; id != "" {
		spec.RolloutID = id
	}
	refused, err := c.releases.Begin(ctx, kruise.Release{Object: kruise.RefOf(r), Confirm: next.Confirm,
		Request: strategy.Request{Spec: spec, Supersede: next.Kind == kruise.DoSupersede, Actor: next.By,
			Reason: next.Reason, Key: next.Key, Warnings: warnings}})
	if err != nil {
		return err
	}
	if refused != "" && next.Kind == kruise.DoSupersede {
		return fmt.Errorf("the release in progress cannot be superseded: %s", refused)
	}
	if refused != "" {
		c.refuse(r, next.Workload, refused)
		return nil
	}
	c.memoryOf(r).sent = shownText{next.Key, time.Now()}
	c.warnings.unchecked(referenceTo(r), unchecked)
	c.options.Log.Info("a release was started", "rollout", r.Namespace+"/"+r.Name, "by", next.By)
	return nil
}

// refuse records why a release cannot begin, and queues the object to show it.
func (c *Controller) refuse(r *v1beta1.Rollout, w *kruise.Workload, why string) {
	name := cache.MetaObjectToName(r)
	c.options.Log.Warn("a release cannot begin", "rollout", name.String(), "problem", why)
	c.memories.of(name).refuse(r, w, why, time.Now())
	c.queue.Add(name)
}

// replan sends the object's current strategy.
func (c *Controller) replan(ctx context.Context, r *v1beta1.Rollout, next kruise.NextAction) error {
	spec, _, err := kruise.SpecOf(r)
	if err != nil {
		return err
	}
	if next.First != nil {
		if err := c.send(ctx, r, *next.First, next.Key+"/"+string(next.First.Verb), nil); err != nil {
			return err
		}
	}
	return c.send(ctx, r, next.Command, next.Key, &spec.Strategy)
}

// send sends one command. If the release no longer runs, the object is updated instead.
func (c *Controller) send(ctx context.Context, r *v1beta1.Rollout, command rollout.Command, key string,
	edited *strategy.Strategy) error {
	command.Key = key
	answer, err := c.releases.Send(ctx, kruise.RefOf(r), command, edited)
	switch {
	case err != nil:
		return err
	case answer.Closed:
		return c.close(ctx, r)
	}
	c.memoryOf(r).sent = shownText{key, time.Now()}
	c.options.Log.Info("sent a command to a release", "rollout", r.Namespace+"/"+r.Name, "verb", command.Verb, "actor",
		command.Actor, "outcome", answer.Outcome, "message", answer.Message)
	return c.checkLost(ctx, r) // a repeated command gets its first answer, even if the release has ended
}

// close writes that no release is in progress.
func (c *Controller) close(ctx context.Context, r *v1beta1.Rollout) error {
	status := *r.Status.DeepCopy()
	if status.Slipway == nil || !status.Slipway.Open {
		return nil
	}
	status.Slipway.Open = false
	failpoint.Hit("controller.close.before")
	err := c.show(ctx, r, status)
	if err == nil {
		failpoint.Hit("controller.close.after")
	}
	return err
}

// checkLost checks at intervals whether the release that an object shows as in progress still runs: it may have been
// terminated.
func (c *Controller) checkLost(ctx context.Context, r *v1beta1.Rollout) error {
	if r.Status.Slipway == nil || !r.Status.Slipway.Open || !c.memoryOf(r).checkDue(r, time.Now()) {
		return nil
	}
	open, err := c.releases.Open(ctx, kruise.RefOf(r))
	if err != nil || open {
		return err
	}
	return c.close(ctx, r)
}

const (
	// otherControllerTTL is how long the answer about other controllers is cached: many releases may be about to begin
	// at once. It is less than kruise.AnnouncementDelay, so that a controller which existed when a workload was changed
	// is found before the release begins.
	otherControllerTTL = 2 * time.Second
	// otherControllerInterval is how often an object that is left to another controller is checked, and how often its
	// reason is written again: the other controller may overwrite it.
	otherControllerInterval = 30 * time.Second
)

// otherController caches whether another controller on the cluster releases the workloads of Rollouts.
type otherController struct{ answer recent.Cache }

// check returns what prevents a release from beginning; ask determines it.
func (b *otherController) check(ctx context.Context,
	ask func(context.Context) (reference.OtherController, error)) (reference.OtherController, error) {
	return recent.Get(ctx, &b.answer, "", otherControllerTTL, ask)
}

// leavesAlone reports whether an object is left alone for now because another controller manages it: neither the object
// nor its workload is written. Only the reason why a held change does not begin is shown. A running release still
// restores what it borrowed.
func (c *Controller) leavesAlone(ctx context.Context, r *v1beta1.Rollout, w *kruise.Workload, next kruise.NextAction,
	refused string) (bool, error) {
	if s := r.Status.Slipway; s != nil && s.Open { // a release in progress is controlled to its end
		return false, nil
	}
	switch next.Kind {
	case kruise.DoAddFinalizer, kruise.DoRemoveFinalizer, kruise.DoWriteHash, kruise.DoMark, kruise.DoWriteStatus,
		kruise.DoReport:
	default:
		return false, nil
	}
	other, err := c.otherController.check(ctx, c.options.OtherController)
	// without a running controller no deletion has to wait
	if err != nil || other.Message == "" || next.Kind == kruise.DoRemoveFinalizer && !other.Runs {
		return false, err
	}
	switch {
	case w == nil || w.Held == nil || w.Claim != "" || next.Kind != kruise.DoWriteStatus:
		return true, nil
	case refused != other.Message:
		c.refuse(r, w, other.Message)
		return true, nil
	}
	return !c.memoryOf(r).shouldShow(other.Message, time.Now()), nil
}
