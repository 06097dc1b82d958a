package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// preflightTimeout is how long the check of one rollout may take: the results of the others wait for it, and an attempt
// takes ten seconds at most.
const preflightTimeout = 8 * time.Second

// PreflightRollouts checks without a write, all at once, that rollouts can be carried out: workload, kind and style,
// change, permissions, and by Options.TrafficPreflight the traffic. A rollout that cannot be checked has a result that
// says so, and does not affect the others. The activity fails only if its worker stops: then another one repeats it,
// and for PreflightRequests.Retry.
func (a *Activities) PreflightRollouts(ctx context.Context, in rollout.PreflightRequests) ([]rollout.PreflightResult,
	error) {
	results, failed := make([]rollout.PreflightResult, len(in.Rollouts)), make([]error, len(in.Rollouts))
	var checks sync.WaitGroup
	begun := time.Now()
	for i, req := range in.Rollouts {
		checks.Go(func() {
			results[i], failed[i] = a.preflightRollout(ctx, &rolloutPreflight{a: a, req: req, begun: begun})
		})
	}
	checks.Wait()
	for i, err := range failed {
		switch {
		case err == nil:
		case in.Retry && !failure.Is(err, failure.Forbidden):
			return nil, attempt.RetriedError(failure.New(failure.Unreachable, "%v", err))
		default:
			results[i] = rollout.PreflightResult{Unchecked: err.Error()}
		}
	}
	return results, ctx.Err()
}

func (a *Activities) preflightRollout(ctx context.Context, p *rolloutPreflight) (rollout.PreflightResult, error) {
	ctx, cancel := context.WithTimeout(kube.WithReadCache(ctx), preflightTimeout)
	defer cancel()
	err := attempt.WithRecover(a.options.Logger.With("workload", p.req.Workload.String()), func() error {
		return p.run(ctx)
	})
	if err != nil {
		err = preflightFailure(err)
	}
	return p.result.Limited(rollout.MaxReasons), err
}

// rolloutPreflight is one check.
type rolloutPreflight struct {
	a   *Activities
	req rollout.PreflightRequest
	// begun is when the checks began of which this is one: they share what is read since.
	begun  time.Time
	result rollout.PreflightResult
	// hung is the workload's own update over which the release begins.
	hung pods.HungUpdate
}

// labelsAge is how old the labels of the namespace may be.
func (p *rolloutPreflight) labelsAge(ctx context.Context) time.Duration {
	return max(attempt.CacheAge(ctx), time.Since(p.begun))
}

// refuse adds a refusal. It returns nil, so that a check can end with it.
func (p *rolloutPreflight) refuse(field, format string, args ...any) error {
	p.result.Refusals = append(p.result.Refusals, rollout.Refusal{Field: field, Reason: fmt.Sprintf(format, args...)})
	return nil
}

func (p *rolloutPreflight) notice(format string, args ...any) {
	p.result.Notices = append(p.result.Notices, fmt.Sprintf(format, args...))
}

func (p *rolloutPreflight) run(ctx context.Context) error {
	if !p.a.cluster.Serves(p.req.Workload.Namespace) {
		return p.refuse("namespace", "this party's worker does not serve the namespace %s", p.req.Workload.Namespace)
	}
	unlisted, err := p.a.unlisted(ctx, p.req.Workload.Namespace, guardMaxAge, p.labelsAge(ctx))
	if err != nil {
		return err
	}
	if unlisted != "" {
		_ = p.refuse("", "%s", unlisted)
	}
	if err := p.pods(ctx); err != nil {
		return err
	}
	if err := p.traffic(ctx); err != nil || len(p.result.Refusals) > 0 {
		return err
	}
	return p.checkGuard(ctx)
}

// traffic runs the check of the traffic.
func (p *rolloutPreflight) traffic(ctx context.Context) error {
	if !p.req.Strategy.HasTraffic() && p.req.Shared == nil {
		return nil
	}
	if p.a.options.TrafficPreflight == nil {
		return p.refuse("strategy", "this party's worker cannot route traffic: leave out trafficRoutings")
	}
	found, err := p.a.options.TrafficPreflight(ctx, p.req)
	p.result.Refusals, p.result.Notices = append(p.result.Refusals, found.Refusals...),
		append(p.result.Notices, found.Notices...)
	if p.result.Holder == "" {
		p.result.Holder, p.result.HeldObject = found.Holder, found.HeldObject
	}
	return err
}

// pods checks the pods, and stops at the first problem that makes the next check useless.
func (p *rolloutPreflight) pods(ctx context.Context) error {
	w, style := p.req.Workload, p.req.Strategy.Style
	oneOf := func(kinds []workload.Kind) string {
		return workload.Join(phrase.Each(kinds, workload.Kind.Name), " or ")
	}
	t := &rolloutJob{job: p.a.reader(w), subject: p.req.Subject, style: style, change: p.req.Change,
		served: p.req.Served}
	if !t.kind.Known() {
		return p.refuse("workloadRef", "%s %s cannot be rolled out: use a %s", w.WorkloadRef.APIVersion,
			w.WorkloadRef.Kind, oneOf(workload.Kinds))
	}
	tech, ok := pods.TechniqueOf(w.WorkloadRef, style)
	if !ok {
		return p.refuse("strategy", "a %s cannot be rolled out in the style %s: an extra workload is for a Deployment "+
			"only, blue-green for a %s", w.WorkloadRef.Kind, style, oneOf(workload.Supporting(strategy.StyleBlueGreen)))
	}
	t.tech = pods.ForDeclared(tech, p.req.Change.Declared != nil)
	lacking, err := p.a.cluster.Permissions().Lacking(ctx, p.needs(t.kind, tech))
	if err != nil {
		return err
	}
	if lacking != "" {
		return p.refuse("", "%s", lacking)
	}
	l, err := t.observe(ctx, t.server())
	if apierrors.IsNotFound(err) {
		if reason := p.a.missingNamespace(ctx, w.Namespace, p.labelsAge(ctx)); reason != "" {
			return p.refuse("namespace", "%s", reason)
		}
		return p.refuse("workloadRef.name", "%s does not exist: create it first", w)
	}
	if err != nil {
		return err
	}
	if t.tech.CountsPods() {
		if err := t.withPods(ctx, l); err != nil {
			return err
		}
	}
	holder := l.seen.Claim
	if holder == "" && l.seen.Saved != nil && workload.IsForeign(p.req.Claim, l.seen.Saved.Claim) {
		holder = l.seen.Saved.Claim // only the other engine may finalise what it left frozen
	}
	if holder != "" {
		p.result.Holder, p.result.HeldObject = holder, w.String()
	}
	return p.check(ctx, t, l)
}

// check checks a workload that exists. It goes on after a refusal wherever another one may follow: all of them are
// reported at once.
func (p *rolloutPreflight) check(ctx context.Context, t *rolloutJob, l *snapshot) error {
	if recalled, kept := l.seen.RecalledRevision(); kept {
		p.result.Revision = &strategy.Revision{Template: recalled.Template, Name: recalled.Name,
			Images: recalled.Images}
	} else if l.seen.Recalled != nil {
		return p.refuse(fieldOf(p.req.Change), "%s", pods.NotKeptReason(p.req.Workload, l.seen))
	}
	// A workload that an earlier release has not finalised is finalised before this one begins: its settings and its
	// pods are checked then.
	earlier := l.seen.Saved != nil || l.seen.Claim != ""
	// refused then as well
	stays := l.seen.Deleting || l.seen.SavedProblem != "" || l.seen.Saved != nil && l.seen.Replicas == 0
	p.result.Frozen = l.seen.Saved != nil && l.seen.Claim == ""
	refused := len(p.result.Refusals)
	if reason := pods.RefusalReason(t.tech, p.req.Subject, l.seen); reason != "" && (!earlier || stays) {
		if _ = p.refuse("workloadRef", "%s", reason); stays {
			return nil
		}
	}
	p.result.Replicas = l.seen.Replicas
	p.addNotices(ctx, t, l)
	if !earlier {
		p.result.Template = l.seen.Template
	}
	if !earlier && len(p.result.Refusals) == refused {
		if err := p.ownUpdate(ctx, t, l); err != nil {
			return err
		}
	}
	if step, reason := pods.StepRefusal(t.tech, p.req.Strategy.Steps, l.seen.Replicas); reason != "" {
		_ = p.refuse(fmt.Sprintf("strategy.blueGreen.steps[%d].replicas", step), "%s", reason)
	}
	if p.req.Strategy.Style == strategy.StyleCanary {
		if err := p.checkExtraName(ctx, t, l); err != nil {
			return err
		}
		if err := t.admitMetadata(templateOf(l.object), p.req.Strategy.PatchPodTemplateMetadata); err != nil {
			_ = p.refuse("strategy.canary.patchPodTemplateMetadata", "%s", err)
		}
	}
	return p.change(ctx, t, l)
}

// addNotices warns of a template that was copied from a pod, and of disruption budgets that the release may exhaust.
func (p *rolloutPreflight) addNotices(ctx context.Context, t *rolloutJob, l *snapshot) {
	if notice := workload.OwnedNotice(p.req.Workload, l.object); notice != "" {
		p.notice("%s", notice)
	}
	if !t.tech.CountsPods() {
		return
	}
	for _, b := range p.a.budgets(ctx, p.req.Workload.Namespace)(l.object) {
		if notice := pods.BudgetNotice(p.req.Workload, l.seen, b); notice != "" {
			p.notice("%s", notice)
		}
	}
}

// ownUpdate checks the update that the workload's own controller may be making: the release waits for one that goes on,
// and begins over one that hangs.
func (p *rolloutPreflight) ownUpdate(ctx context.Context, t *rolloutJob, l *snapshot) error {
	p.result.Unsettled = pods.UnsettledReason(t.tech, p.req.Subject, l.seen)
	if !pods.MayHang(l.seen) {
		return nil
	}
	if !l.seen.PodsSeen {
		if err := t.withPods(ctx, l); err != nil {
			return err
		}
	}
	u, hangs := pods.Hung(t.tech, l.seen)
	switch {
	case !hangs:
		return nil
	case u.Unknown:
		p.result.StableUnknown = true
		return p.refuse("workloadRef", "%s", u.Refusal(p.req.Subject, l.seen))
	}
	p.result.Unsettled, p.hung = "", u
	p.notice("%s", u.Notice(p.req.Subject))
	return nil
}

// checkExtraName checks that the extra workload's name is free. That of an earlier release is deleted when that release
// is finalised.
func (p *rolloutPreflight) checkExtraName(ctx context.Context, t *rolloutJob, l *snapshot) error {
	name := p.req.Workload.WorkloadRef.Name + strategy.CanarySuffix
	if e := l.seen.Extra; e != nil && e.Name == name &&
		e.CanaryOf == strategy.CanaryOf(p.req.Workload.WorkloadRef.Name) {
		return nil
	}
	_, err := t.getNamed(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		return p.refuse("workloadRef.name", "a Deployment %s exists already, but the extra workload needs its name: "+
			"delete or rename it", name)
	}
	return err
}

// change checks that the change can be made, and that it changes something: compared with the stable version, to which
// an earlier release is rolled back.
func (p *rolloutPreflight) change(ctx context.Context, t *rolloutJob, l *snapshot) error {
	if p.req.Change.Declared != nil { // it is on the workload, and was checked with it
		if err := t.admitChange(ctx, l); err != nil {
			return p.refuse(fieldOf(p.req.Change), "%s", err)
		}
		if template, err := t.declaredTemplate(l); err == nil {
			p.req.PodLabels = labelsOf(template)
		}
		return nil
	}
	field := fieldOf(p.req.Change)
	if v := operation.VersionOf(p.req.Change); v != nil {
		refusal, err := p.a.versionRefusal(ctx, v, p.req.Build, p.req.Workload.Namespace, templateOf(l.object))
		image := p.req.Change.Image
		switch {
		case refusal.Reason != "":
			return p.refuse(cmp.Or(refusal.Key, field), "%s: %s", p.req.Workload, refusal.Reason)
		case err != nil, image != nil && image.Reference == "": // it is not built yet
			return err
		}
	}
	if field == "" {
		return p.refuse("", "nothing is to be changed: give images or a templatePatch")
	}
	template, err := t.dryRun(ctx, l)
	var f *failure.Error
	if errors.As(err, &f) {
		return p.refuse(field, "%s", f.Message)
	}
	if err != nil {
		return err
	}
	p.req.PodLabels = labelsOf(template)
	if l.seen.Saved == nil && operation.VersionOf(p.req.Change) == nil {
		p.result.Predicted = &rollout.PredictedTemplate{Template: pods.Digest(template), UID: l.seen.UID,
			From: l.seen.Template}
	}
	return p.changesNothing(field, pods.Digest(template), l)
}

// changesNothing refuses a change to the template that serves already, or warns of it while an update to another one
// hangs.
func (p *rolloutPreflight) changesNothing(field, template string, l *snapshot) error {
	serves := p.hung.Stable.Template != "" && template == p.hung.Stable.Template
	switch saved := l.seen.Saved; {
	case serves && operation.VersionOf(p.req.Change) != nil:
		return p.refuse(field, "%s: that version serves while its own update hangs: go back to it with `kubectl "+
			"rollout undo`, or deploy another one", p.req.Workload)
	case serves:
		p.notice("%s: that is the version that serves already: the release has no steps, and brings all pods back to "+
			"it", p.req.Workload)
	case saved == nil && template == l.seen.Template:
		p.result.AlreadyDeployed = len(p.result.Refusals) == 0
		return p.refuse(field, "%s is of that version already: the change changes nothing", p.req.Workload)
	case saved != nil && template == saved.StableTemplate:
		return p.refuse(field, "%s is rolled back to that very version first: the change changes nothing, roll the "+
			"earlier release back instead", p.req.Workload)
	}
	return nil
}

// labelsOf are the labels that a pod template gives its pods, not nil.
func labelsOf(template map[string]any) map[string]string {
	labels, _, _ := unstructured.NestedStringMap(template, "metadata", "labels")
	if labels == nil {
		labels = map[string]string{}
	}
	return labels
}

// fieldOf is the field of a request with the change, "" if there is none.
func fieldOf(change strategy.Change) string {
	switch {
	case change.Revision != nil:
		return "toRevision"
	case len(change.TemplatePatch) > 0:
		return "templatePatch"
	case len(change.Images) > 0:
		return "images"
	case change.Package != nil:
		return "package"
	case change.Image != nil:
		return "image"
	}
	return ""
}

// needs are the permissions that the rollout needs.
func (p *rolloutPreflight) needs(k kind, tech pods.Technique) []kube.Permission {
	ns := p.req.Workload.Namespace
	needs := slices.Concat(kube.Needs(k.Resource, ns, "get", "list", "watch", "patch"),
		kube.Needs(podsResource, ns, "list", "delete"), kube.Needs(k.revisions(), ns, "list"))
	if tech.CountsPods() {
		needs = append(needs, kube.NeedsEviction(ns)...)
	}
	if p.req.Change.Declared != nil { // they are numbered
		needs = append(needs, kube.Needs(podsResource, ns, "patch")...)
	}
	switch p.req.Strategy.Style {
	case strategy.StyleCanary:
		needs = append(needs, kube.Needs(deploymentsResource, ns, "create", "delete")...)
	case strategy.StyleBlueGreen:
		needs = append(needs, kube.Needs(autoscalersResource, ns, "list", "patch")...)
	}
	return needs
}
