package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// fieldManager owns what the controller writes.
const fieldManager = "slipway"

// reconcile does what is to be done next about an object, and says when to look again although nothing changes.
func (c *Controller) reconcile(ctx context.Context, name cache.ObjectName) (again time.Duration, err error) {
	r, there := c.rollouts.get(name.Namespace, name.Name).(*v1beta1.Rollout)
	if !there {
		c.refusals.forget(name)
		c.answers.forget(name)
		c.beside.told.forget(name)
		c.looked.forget(name)
		c.written.forget(name)
		return 0, nil
	}
	if unseen := c.written.unseen(name, r, time.Now()); unseen > 0 {
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
	now := time.Now()
	refused, retryAt := c.refusals.of(name, r, w, now)
	next := kruise.Decide(kruise.Seen{Object: r, Workload: w, Strays: c.workloads.strays(r), Refused: refused, RetryAt: retryAt, Now: now})
	if !next.At.IsZero() {
		again = max(next.At.Sub(now), time.Millisecond)
	}
	if next.Do == kruise.DoNothing {
		return again, c.lost(ctx, r)
	}
	if passedOn := c.answers.holds(name, next.Key, now); passedOn > 0 {
		return passedOn, nil
	}
	if leaves, err := c.leaves(ctx, r, w, next, refused); leaves || err != nil {
		return besideAgain, err
	}
	err = c.act(ctx, r, next, engine)
	if failure.Is(err, failure.Conflict) || failure.Is(err, failure.NotFound) {
		return again, nil // the watch shows what somebody else has made of it
	}
	return again, err
}

// ours says whether this engine looks after an object. One that nobody looks after yet is any engine's, unless its namespace names another.
func (c *Controller) ours(ctx context.Context, engine workloadops.Engine, r *v1beta1.Rollout) (bool, error) {
	ours, named := kruise.LooksAfter(engine, r)
	if named {
		return ours, nil
	}
	name, err := c.namespaces.engineOf(ctx, r.Namespace, c.home.NamespaceLabels)
	return name == "" || name == engine.Name, err
}

// act does one thing. The process may die before and after it, whatever it is.
func (c *Controller) act(ctx context.Context, r *v1beta1.Rollout, next kruise.NextAction, engine workloadops.Engine) error {
	what := string(next.Do)
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

func (c *Controller) do(ctx context.Context, r *v1beta1.Rollout, next kruise.NextAction, engine workloadops.Engine) error {
	switch next.Do {
	case kruise.DoGuard:
		return c.home.GuardRollout(ctx, r, kruise.EngineText(engine))
	case kruise.DoUnguard:
		return c.home.GuardRollout(ctx, r, "")
	case kruise.DoHash:
		return c.home.AnnotateRollout(ctx, r, kruise.AnnotationHash, kruise.StrategyHash(r.Spec.Strategy))
	case kruise.DoShow:
		return c.show(ctx, r, *next.Status)
	case kruise.DoMark:
		return c.mark(ctx, r, next.Workload)
	case kruise.DoRelease, kruise.DoLetGo:
		return c.letGo(ctx, next.Workload, next.Do == kruise.DoLetGo)
	case kruise.DoBegin, kruise.DoSupersede:
		return c.begin(ctx, r, next)
	case kruise.DoCommand:
		return c.send(ctx, r, next.Command, next.Key, nil)
	case kruise.DoReplan:
		return c.replan(ctx, r, next)
	}
	return fmt.Errorf("%q is not known as something to be done about a Rollout", next.Do)
}

func (c *Controller) show(ctx context.Context, r *v1beta1.Rollout, status v1beta1.RolloutStatus) error {
	now, err := c.home.SetRolloutStatus(ctx, r, status)
	if err == nil {
		c.written.note(now, time.Now())
	}
	return err
}

func (c *Controller) mark(ctx context.Context, r *v1beta1.Rollout, w *kruise.Workload) error {
	body, err := json.Marshal(kruise.MarkPatch(r.Name, w.Ref.Kind))
	if err != nil {
		return err
	}
	_, err = c.objects.Resource(resourceOf(w)).Namespace(w.Namespace).Patch(ctx, w.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

// letGo gives back what holds a workload. It is read first: the watch keeps no spec. Unless it is let go wholly, only the template that was seen
// is: a version that somebody has declared since waits for its release.
func (c *Controller) letGo(ctx context.Context, seen *kruise.Workload, wholly bool) error {
	client := c.objects.Resource(resourceOf(seen)).Namespace(seen.Namespace)
	found, err := client.Get(ctx, seen.Name, metav1.GetOptions{})
	if err != nil {
		return notFoundIsFine(err)
	}
	w := kruise.ReadWorkload(found)
	if !wholly && w.Template != seen.Template {
		return nil // another change is held by now: the watch shows it
	}
	if w.HeldProblem != "" {
		return fmt.Errorf("%s %s/%s: %s", w.Ref.Kind, w.Namespace, w.Name, w.HeldProblem)
	}
	if w.Claim != "" {
		w.Held = nil // the release has it
	}
	body, err := json.Marshal(kruise.ReleasePatch(w, wholly, found))
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, w.Name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	return notFoundIsFine(err)
}

// begin starts a release, or one that takes another's place. What it is refused for is shown.
func (c *Controller) begin(ctx context.Context, r *v1beta1.Rollout, next kruise.NextAction) error {
	if next.Do == kruise.DoBegin { // one that takes another's place goes on with what has begun
		other, err := c.beside.look(ctx, c.options.Beside)
		if err != nil {
			return err
		}
		if other.Says != "" {
			c.refuse(r, next.Workload, other.Says)
			return nil
		}
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
	refused, err := c.releases.Begin(ctx, kruise.Release{Object: kruise.RefOf(r), Confirm: next.Confirm, Request: strategy.Request{
		Spec: spec, Supersede: next.Do == kruise.DoSupersede, Actor: next.By, Reason: next.Reason, Key: next.Key, Warnings: warnings}})
	if err != nil {
		return err
	}
	if refused != "" && next.Do == kruise.DoSupersede {
		return fmt.Errorf("the release under way does not make way: %s", refused)
	}
	if refused != "" {
		c.refuse(r, next.Workload, refused)
		return nil
	}
	c.answers.note(cache.ObjectName{Namespace: r.Namespace, Name: r.Name}, next.Key, time.Now())
	c.options.Log.Info("a release was started", "rollout", r.Namespace+"/"+r.Name, "by", next.By)
	return nil
}

// refuse notes why a release cannot begin, and has the object show it.
func (c *Controller) refuse(r *v1beta1.Rollout, w *kruise.Workload, why string) {
	name := cache.ObjectName{Namespace: r.Namespace, Name: r.Name}
	c.options.Log.Warn("a release cannot begin", "rollout", name.String(), "problem", why)
	c.refusals.note(name, r, w, why, time.Now())
	c.queue.Add(name)
}

// replan passes on what the object's spec says now.
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

// send sends one command. A release that is not there any more cannot take it: then the object says so.
func (c *Controller) send(ctx context.Context, r *v1beta1.Rollout, command rollout.Command, key string, edited *strategy.Strategy) error {
	command.Key = key
	answer, err := c.releases.Send(ctx, kruise.RefOf(r), command, edited)
	switch {
	case err != nil:
		return err
	case answer.Closed:
		return c.close(ctx, r)
	}
	c.answers.note(cache.ObjectName{Namespace: r.Namespace, Name: r.Name}, key, time.Now())
	c.options.Log.Info("a command was passed on", "rollout", r.Namespace+"/"+r.Name, "verb", command.Verb, "actor", command.Actor, "outcome",
		answer.Outcome, "said", answer.Message)
	return c.lost(ctx, r) // one that was said before is answered as it was, also by a release that has ended
}

// close notes that no release is under way.
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

// lost looks now and then whether the release that an object shows as under way still runs: somebody may have terminated it.
func (c *Controller) lost(ctx context.Context, r *v1beta1.Rollout) error {
	if r.Status.Slipway == nil || !r.Status.Slipway.Open || !c.looked.due(r, time.Now()) {
		return nil
	}
	open, err := c.releases.Open(ctx, kruise.RefOf(r))
	if err != nil || open {
		return err
	}
	return c.close(ctx, r)
}

// looked is when a release was looked at last, by its object: one that is made again under the same name is another.
type looked struct{ remembered[look] }

type look struct {
	of types.UID
	at time.Time
}

// due says whether it is time to look again; if so, it is noted. At first it is not: the object has just been written.
func (l *looked) due(r *v1beta1.Rollout, now time.Time) bool {
	name := cache.ObjectName{Namespace: r.Namespace, Name: r.Name}
	last, known := l.get(name)
	known = known && last.of == r.UID
	if known && now.Sub(last.at) < lookAgain-time.Second {
		return false
	}
	l.put(name, look{r.UID, now})
	return known
}
