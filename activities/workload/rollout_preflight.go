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
// says so, and does not affect the others. The activity fails only if its worker stops: then another one repeats it, and
// for PreflightRequests.Retry.
func (a *Activities) PreflightRollouts(ctx context.Context, in rollout.PreflightRequests) ([]rollout.PreflightResult,
	error) {
	results, failed := make([]rollout.PreflightResult, len(in.Rollouts)), make([]error, len(in.Rollouts))
	var checks sync.WaitGroup
	for i, req := range in.Rollouts {
		checks.Go(func() { results[i], failed[i] = a.preflightRollout(ctx, req) })
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

func (a *Activities) preflightRollout(ctx context.Context, req rollout.PreflightRequest) (rollout.PreflightResult,
	error) {
	ctx, cancel := context.WithTimeout(kube.WithReadCache(ctx), preflightTimeout)
	defer cancel()
	p := &rolloutPreflight{a: a, req: req}
	err := attempt.WithRecover(a.options.Logger.With("workload", req.Workload.String()), func() error {
		return p.run(ctx)
	})
	if err != nil {
		err = preflightFailure(err)
	}
	return p.result, err
}

// rolloutPreflight is one check.
type rolloutPreflight struct {
	a      *Activities
	req    rollout.PreflightRequest
	result rollout.PreflightResult
}

func (p *rolloutPreflight) refuse(field, reason string) {
	p.result.Refusals = append(p.result.Refusals, rollout.Refusal{Field: field, Reason: reason})
}

func (p *rolloutPreflight) run(ctx context.Context) error {
	if !p.a.cluster.Serves(p.req.Workload.Namespace) {
		p.refuse("namespace", "this party's worker does not serve the namespace "+p.req.Workload.Namespace)
		return nil
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
		p.refuse("strategy", "this party's worker cannot route traffic: leave out trafficRoutings")
		return nil
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
	k, known := kindOf(w.WorkloadRef)
	tech, ok := pods.TechniqueOf(w.WorkloadRef, style)
	switch {
	case !known:
		p.refuse("workloadRef",
			w.WorkloadRef.APIVersion+" "+w.WorkloadRef.Kind+" cannot be rolled out: use a "+
				workload.Join(phrase.Each(workload.Kinds, workload.Kind.Name), " or "))
		return nil
	case !ok:
		p.refuse("strategy",
			"a "+w.WorkloadRef.Kind+" cannot be rolled out in the style "+string(style)+
				": an extra workload is for a Deployment only, blue-green for a "+
				workload.Join(phrase.Each(workload.Supporting(strategy.StyleBlueGreen), workload.Kind.Name), " or "))
		return nil
	}
	lacking, err := p.missingPermissions(ctx, k)
	if err != nil {
		return err
	}
	if lacking != "" {
		p.refuse("", lacking)
		return nil
	}
	t := &rolloutJob{job: job{a: p.a, workload: w, kind: k}, subject: p.req.Subject, style: style,
		tech:          pods.ForDeclared(tech, p.req.Change.Declared != nil),
		templateState: templateState{change: p.req.Change}}
	l, err := t.observe(ctx, server{&t.job})
	if err == nil {
		err = t.complete(ctx, l)
	}
	if apierrors.IsNotFound(err) {
		if reason := p.a.missingNamespace(ctx, w.Namespace); reason != "" {
			p.refuse("namespace", reason)
			return nil
		}
		p.refuse("workloadRef.name", w.String()+" does not exist: create it first")
		return nil
	}
	if err != nil {
		return err
	}
	return p.check(ctx, t, l)
}

// holder names the release that holds the workload, or has left it frozen.
func (p *rolloutPreflight) holder(seen pods.Observed) {
	switch saved := seen.Saved; {
	case seen.Claim != "":
		p.result.Holder, p.result.HeldObject = seen.Claim, p.req.Workload.String()
	// only the other engine may finalise what it left frozen
	case saved != nil && workload.IsForeign(p.req.Claim, saved.Claim):
		p.result.Holder, p.result.HeldObject = saved.Claim, p.req.Workload.String()
	}
}

// budgets adds notices about what disruption budgets will do to the rollout.
func (p *rolloutPreflight) budgets(ctx context.Context, l *snapshot) {
	for _, b := range p.a.budgets(ctx, p.req.Workload.Namespace)(l.object) {
		if notice := pods.BudgetNotice(p.req.Workload, l.seen, b); notice != "" {
			p.result.Notices = append(p.result.Notices, notice)
		}
	}
}

func (p *rolloutPreflight) check(ctx context.Context, t *rolloutJob, l *snapshot) error {
	if t.tech.CountsPods() {
		if err := t.withPods(ctx, l); err != nil {
			return err
		}
	}
	p.holder(l.seen)
	if recalled, kept := l.seen.RecalledRevision(); kept {
		p.result.Revision = &strategy.Revision{Template: recalled.Template, Name: recalled.Name,
			Images: recalled.Images}
	} else if l.seen.Recalled != nil {
		p.refuse(fieldOf(p.req.Change), pods.NotKeptReason(p.req.Workload, l.seen))
		return nil
	}
	// A workload that an earlier release has not finalised is finalised before this one begins: its settings and its
	// pods are checked then.
	earlier := l.seen.Saved != nil || l.seen.Claim != ""
	// refused then as well
	stays := l.seen.Deleting || l.seen.SavedProblem != "" || l.seen.Saved != nil && l.seen.Replicas == 0
	p.result.Frozen = l.seen.Saved != nil && l.seen.Claim == ""
	if reason := pods.RefusalReason(t.tech, p.req.Subject, l.seen); reason != "" && (!earlier || stays) {
		p.refuse("workloadRef", reason)
		return nil
	}
	p.result.Replicas = l.seen.Replicas
	if t.tech.CountsPods() {
		p.budgets(ctx, l)
	}
	if !earlier {
		p.result.Template = l.seen.Template
		p.result.Unsettled = pods.UnsettledReason(t.tech, p.req.Subject, l.seen)
	}
	if step, reason := pods.StepRefusal(t.tech, p.req.Strategy.Steps, l.seen.Replicas); reason != "" {
		p.refuse(fmt.Sprintf("strategy.blueGreen.steps[%d].replicas", step), reason)
		return nil
	}
	if p.req.Strategy.Style == strategy.StyleCanary {
		if err := p.checkExtraName(ctx, t, l); err != nil {
			return err
		}
	}
	return p.change(ctx, t, l)
}

// checkExtraName checks that the extra workload's name is free. That of an earlier release is deleted when that release
// is finalised.
func (p *rolloutPreflight) checkExtraName(ctx context.Context, t *rolloutJob, l *snapshot) error {
	name := p.req.Workload.WorkloadRef.Name + strategy.CanarySuffix
	if e := l.seen.Extra; e != nil && e.Name == name &&
		e.CanaryOf == strategy.CanaryOf(p.req.Workload.WorkloadRef.Name) {
		return nil
	}
	_, err := p.a.cluster.Get(ctx, t.ref(deploymentsResource, name))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		p.refuse("workloadRef.name", "a Deployment "+name+
			" exists already, but the extra workload needs its name: delete or rename it")
	}
	return err
}

// change checks that the change can be made, and that it changes something: compared with the stable version, to which
// an earlier release is rolled back.
func (p *rolloutPreflight) change(ctx context.Context, t *rolloutJob, l *snapshot) error {
	if p.req.Change.Declared != nil { // it is on the workload, and was checked with it
		return nil
	}
	field := fieldOf(p.req.Change)
	if v := operation.VersionOf(p.req.Change); v != nil {
		if known, err := p.version(ctx, v, templateOf(l.object)); err != nil || !known {
			return err
		}
	}
	if field == "" {
		p.refuse("", "nothing is to be changed: give images or a templatePatch")
		return nil
	}
	template, err := t.dryRun(ctx, l)
	var f *failure.Error
	if errors.As(err, &f) {
		p.refuse(field, f.Message)
		return nil
	}
	if err != nil {
		return err
	}
	if l.seen.Saved == nil && operation.VersionOf(p.req.Change) == nil {
		p.result.Predicted = &rollout.PredictedTemplate{Template: pods.Digest(template), UID: l.seen.UID,
			From: l.seen.Template}
	}
	switch saved := l.seen.Saved; {
	case saved == nil && pods.Digest(template) == l.seen.Template:
		p.result.AlreadyDeployed = true
		p.refuse(field, p.req.Workload.String()+" is of that version already: the change changes nothing")
	case saved != nil && pods.Digest(template) == saved.StableTemplate:
		p.refuse(field, p.req.Workload.String()+" is rolled back to that very version first: the change changes "+
			"nothing, "+
			"roll the earlier release back instead")
	}
	return nil
}

// version checks that what a plan deploys can reach the pods. known is true when there is a version to try, and no
// problem with it.
func (p *rolloutPreflight) version(ctx context.Context, v operation.Version, template map[string]any) (known bool,
	err error) {
	refusal, err := p.a.versionRefusal(ctx, v, p.req.Build, p.req.Workload.Namespace, template)
	if refusal.Reason != "" {
		p.refuse(cmp.Or(refusal.Key, fieldOf(p.req.Change)), p.req.Workload.String()+": "+refusal.Reason)
	}
	image := p.req.Change.Image
	return refusal.Reason == "" && err == nil && (image == nil || image.Reference != ""), err
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

// missingPermissions lists the permissions that the worker does not have.
func (p *rolloutPreflight) missingPermissions(ctx context.Context, k kind) (string, error) {
	ns := p.req.Workload.Namespace
	needs := slices.Concat(kube.Needs(k.Resource, ns, "get", "list", "watch", "patch"),
		kube.Needs(podsResource, ns, "list", "delete"), kube.Needs(k.revisions(), ns, "list"))
	if tech, ok := pods.TechniqueOf(p.req.Workload.WorkloadRef, p.req.Strategy.Style); ok && tech.CountsPods() {
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
	return p.a.cluster.Permissions().Lacking(ctx, needs)
}
