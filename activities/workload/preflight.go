package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

// listFrom is the number of workloads of one kind and namespace from which on they are listed instead of read one by
// one.
const listFrom = 4

// Preflight checks, without a write, that every request can be carried out: the workload exists, its current state
// allows the operation, and the worker has the permissions. A claim of another release is no refusal here, unless it
// belongs to another engine: the holder may have finished by then, or be dead; Run finds out. It fails with Unreachable
// or Forbidden when the cluster does not answer.
func (a *Activities) Preflight(ctx context.Context, in operation.PreflightRequest) (operation.PreflightResult, error) {
	checks := make([]*check, len(in.Requests))
	for i, req := range in.Requests {
		checks[i] = &check{operationJob: operationJob{job: a.reader(req.Workload), req: req}}
	}
	var out operation.PreflightResult
	if err := a.checkAll(ctx, checks); err != nil {
		return out, attempt.ApplicationError(preflightFailure(err))
	}
	for i, c := range checks {
		if c.reason != "" {
			out.Refusals = append(out.Refusals, operation.Refusal{Index: i, Key: c.key,
				Reason: phrase.Cut(c.reason, rollout.MaxReason)})
		} else if c.warning != "" {
			out.Warnings = append(out.Warnings, operation.Refusal{Index: i,
				Reason: phrase.Cut(c.warning, rollout.MaxReason)})
		}
	}
	return out, nil
}

// check is the check of one request: it is made by one goroutine, so that it needs no lock.
type check struct {
	operationJob
	// reason is what prevents the request, "" for nothing; key names the field of the plan's item that is at fault.
	reason, key, warning string
}

// scope is a kind, by its key, in a namespace.
type scope struct{ kind, namespace string }

func (a *Activities) checkAll(ctx context.Context, checks []*check) error {
	groups := map[scope][]*check{}
	for _, c := range checks {
		if f := a.check(c.req); f != nil {
			c.reason = f.Message
			continue
		}
		s := scope{c.kind.Key(), c.workload.Namespace}
		groups[s] = append(groups[s], c)
	}
	asked := a.cluster.Permissions()
	var needs []kube.Permission
	for _, members := range groups {
		needs = append(needs, needsOf(members)...)
	}
	if err := asked.Ask(ctx, needs); err != nil {
		return err
	}
	var jobs []func(ctx context.Context) error
	for group, members := range groups {
		problem := asked.Lacks(needsOf(members))
		if problem == "" {
			var err error
			if problem, err = a.unlisted(ctx, group.namespace, guardMaxAge,
				attempt.CacheAge(ctx)); err != nil {
				return err
			}
		}
		if problem != "" {
			for _, c := range members {
				c.reason = fmt.Sprintf("%s: %s", c.workload, problem)
			}
			continue
		}
		at := len(members)
		if at < listFrom {
			at = 1
		}
		for some := range slices.Chunk(members, at) {
			jobs = append(jobs, func(ctx context.Context) error { return a.checkTogether(ctx, some) })
		}
	}
	return kube.Parallel(ctx, jobs)
}

// checkTogether reads one workload, or several of one kind and namespace by a list, and checks them.
func (a *Activities) checkTogether(ctx context.Context, checks []*check) error {
	first, found := checks[0], map[string]*unstructured.Unstructured{}
	if len(checks) > 1 {
		list, err := a.cluster.List(ctx, first.kind.Resource, first.workload.Namespace, "")
		if err != nil {
			return err
		}
		for i := range list {
			found[list[i].GetName()] = &list[i]
		}
	} else if o, err := first.get(ctx); err == nil {
		found[first.workload.WorkloadRef.Name] = o
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	withoutNamespace := sync.OnceValue(func() string {
		return a.missingNamespace(ctx, first.workload.Namespace, attempt.CacheAge(ctx))
	})
	covering := a.budgets(ctx, first.workload.Namespace)
	for _, c := range checks {
		o := found[c.workload.WorkloadRef.Name]
		if o == nil {
			c.reason = fmt.Sprintf("%s does not exist: %s", c.workload,
				cmp.Or(withoutNamespace(), "create it, or remove it from the catalogue"))
		} else if err := c.check(ctx, o, covering); err != nil {
			return err
		}
	}
	return nil
}

// check notes what prevents the request, and otherwise the effect of PodDisruptionBudgets on it.
func (c *check) check(ctx context.Context, live *unstructured.Unstructured,
	covering func(*unstructured.Unstructured) []workload.Budget) error {
	o, err := c.observe(ctx, live)
	if err != nil {
		return err
	}
	c.reason = operation.RefusalReason(c.req, o.seen)
	if claim := o.seen.Claim; workload.IsForeign(c.req.Claim, claim) {
		c.reason = fmt.Sprintf("%s is being released by %s: %s", c.workload, workload.HolderName(c.req.Claim, claim),
			workload.ForeignReason(workload.ParseHolder(claim)))
	}
	if v := c.req.Version(); v != nil && c.reason == "" {
		refusal, err := c.a.versionRefusal(ctx, v, c.req.Build, c.workload.Namespace, templateOf(live))
		if refusal.Reason != "" {
			c.key, c.reason = refusal.Key, c.workload.String()+": "+refusal.Reason
		}
		if err != nil {
			return err
		}
	}
	if c.reason == "" {
		if c.reason, err = c.policyRefusal(ctx, live); err != nil {
			return err
		}
	}
	if c.reason != "" || c.req.Operation == plan.Start { // which removes no pod
		return nil
	}
	for _, b := range covering(live) {
		c.warning = cmp.Or(c.warning, operation.BudgetWarning(c.req, o.seen, b))
	}
	c.warning = cmp.Or(c.warning, workload.OwnedNotice(c.workload, live))
	return nil
}

// needsOf are the permissions that these requests need, all of one kind and namespace.
func needsOf(checks []*check) []kube.Permission {
	k, namespace := checks[0].kind, checks[0].workload.Namespace
	needs := append(kube.Needs(k.Resource, namespace, "get", "list", "watch", "patch"),
		kube.Needs(podsResource, namespace, "list", "watch", "delete")...)
	if k.Means != workload.Limits { // a Deployment's pods are never removed one by one
		needs = append(needs, kube.NeedsEviction(namespace)...)
	}
	if slices.ContainsFunc(checks, func(c *check) bool {
		return c.req.Restore != nil && c.req.Restore.Template != nil
	}) {
		needs = append(needs, kube.Needs(k.revisions(), namespace, "list")...)
	}
	return needs
}

// missingNamespace is the reason that a namespace does not exist, "" when it does or when this worker may not read it:
// a workload that is missing because its namespace is misspelt must not be created, but looked for elsewhere.
func (a *Activities) missingNamespace(ctx context.Context, namespace string, fresh time.Duration) string {
	if !a.protection.MissesNamespace(ctx, namespace, fresh) {
		return ""
	}
	return fmt.Sprintf("the cluster has no namespace %s; check its spelling and the party, or create it", namespace)
}

// preflightFailure is the failure of a check that the cluster did not answer.
func preflightFailure(err error) error {
	switch kube.Classify(err) {
	case kube.Internal:
		return err
	case kube.Forbidden, kube.Refused:
		return failure.New(failure.Forbidden, "this party's worker lacks a permission: %s", kube.Text(err))
	default:
		return failure.New(failure.Unreachable, "this party's cluster is out of reach: %s", kube.Text(err))
	}
}

// CountUnavailable counts the desired pods of each workload that are not ready. It writes nothing. A cluster that does
// not answer is retried.
func (a *Activities) CountUnavailable(ctx context.Context,
	in operation.UnavailableRequest) (operation.UnavailableResult, error) {
	result := operation.UnavailableResult{Unavailable: make([]int32, len(in.Workloads))}
	for i, w := range in.Workloads {
		t := a.reader(w)
		if !t.kind.Known() || !w.WorkloadRef.Operated() || !a.cluster.Serves(w.Namespace) {
			continue // Run reports what is wrong with it
		}
		o, err := t.get(ctx)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return result, attempt.RetriedError(preflightFailure(err))
		}
		counts := t.kind.Count(o.Object)
		result.Unavailable[i] = max(0, counts.Size-counts.Ready)
	}
	return result, nil
}

// budgets finds the PodDisruptionBudgets of a namespace that cover a workload's pods. They are read once, on first use.
// A worker that may not read them finds none; callers for which that matters have checked the permission before.
func (a *Activities) budgets(ctx context.Context, namespace string) func(*unstructured.Unstructured) []workload.Budget {
	all := sync.OnceValue(func() []policyv1.PodDisruptionBudget {
		list, err := a.cluster.Budgets(ctx, namespace)
		if err != nil {
			a.options.Logger.DebugContext(ctx, "failed to read the PodDisruptionBudgets", "namespace", namespace,
				"error", err)
		}
		return list
	})
	return func(o *unstructured.Unstructured) (covering []workload.Budget) {
		podLabels, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
		for _, b := range all() {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err == nil && selector.Matches(labels.Set(podLabels)) {
				covering = append(covering, workload.Budget{Name: b.Name, Allowed: b.Status.DisruptionsAllowed})
			}
		}
		return covering
	}
}

// Diff reports, without a write, what each request would change: it decides on the current workload, and lets the API
// server make the first write as a dry run. It fails with Unreachable or Forbidden when the cluster does not answer.
func (a *Activities) Diff(ctx context.Context, in operation.PreflightRequest) (operation.DiffResult, error) {
	out := operation.DiffResult{Workloads: make([]operation.Diff, len(in.Requests))}
	var jobs []func(ctx context.Context) error
	for i, req := range in.Requests {
		jobs = append(jobs, func(ctx context.Context) (err error) {
			out.Workloads[i], err = a.diff(ctx, req)
			return err
		})
	}
	if err := kube.Parallel(ctx, jobs); err != nil {
		return operation.DiffResult{}, attempt.ApplicationError(preflightFailure(err))
	}
	return out, nil
}

func (a *Activities) diff(ctx context.Context, req operation.Request) (operation.Diff, error) {
	if f := a.check(req); f != nil {
		return operation.Diff{Summary: f.Message}, nil
	}
	if req.Operation == plan.CompileDeploy {
		return operation.Diff{Changes: true, Summary: "deploys what is built from the branch",
			Unknown: "what the build yields, and whether the pods have it already, is known once the branch's commit " +
				"is built"}, nil
	}
	req.Marker = operation.DiffMarker
	if req.Package != nil {
		p := *req.Package
		p.Hidden = false // the query is not shown anyway
		p.SHA256, req.Package = source.DigestOf(p.URL), &p
		req.Marker = p.Marker()
	}
	for again := 0; ; again++ {
		diff, changed, err := (&operationJob{job: a.reader(req.Workload), req: req}).diff(ctx)
		if !changed || again == diffRetries {
			return diff, err
		}
	}
}

// diffRetries is how often to read a workload again that another client, usually its own controller, has changed
// between the read and the dry run.
const diffRetries = 2

// diff reads once, and lets the API server process the first write without storing it; changed is true when the
// workload changed after the read, or rejects the change.
func (t *operationJob) diff(ctx context.Context) (diff operation.Diff, changed bool, err error) {
	live, err := t.get(ctx)
	if apierrors.IsNotFound(err) {
		return operation.Diff{Summary: t.workload.String() + " does not exist"}, false, nil
	}
	if err != nil {
		return diff, false, err
	}
	o, err := t.observe(ctx, live)
	if err != nil {
		return diff, false, err
	}
	o.seen.Now = t.a.options.Now()
	d := operation.Decide(t.req, o.seen)
	if d.Action == workload.ActReadPods {
		if err := t.readPods(ctx, o); err != nil {
			return diff, false, err
		}
		d = operation.Decide(t.req, o.seen)
	}
	if d.Write == nil {
		return operation.DiffOf(t.req, o.seen, d, nil), false, nil
	}
	template, err := t.template(ctx, o, d.Write)
	var after *unstructured.Unstructured
	if err == nil {
		after, err = t.a.cluster.Patch(ctx, t.ref(t.kind.Resource, o.GetName()),
			jsonpatch.Encode(patchOf(o.Unstructured, d.Write, template)), true)
	}
	diff.Summary = d.Reason
	switch f := (*failure.Error)(nil); {
	case errors.As(err, &f):
		diff.Unknown = f.Message
	case kube.IsAny(err, kube.Rejected, kube.Changed):
		diff.Unknown = "its cluster does not accept the change, or it was changed just now: " + kube.Text(err)
		return diff, true, nil
	case kube.IsAny(err, kube.Refused):
		diff.Unknown = "its cluster does not accept the change: " + kube.Text(err)
	case err != nil:
		return operation.Diff{}, false, err
	default:
		fields := pods.ChangedFields(templateOf(o.Unstructured), templateOf(after))
		diff = operation.DiffOf(t.req, o.seen, d, t.markUnfetched(fields))
	}
	return diff, false, nil
}

// markUnfetched replaces values that depend on the digest of a package that is not fetched yet.
func (t *operationJob) markUnfetched(fields []workload.FieldChange) []workload.FieldChange {
	if t.req.Package == nil || t.req.Package.SHA256 != "" {
		return fields
	}
	for i := range fields {
		switch fields[i].Field {
		case "metadata.annotations." + source.AnnotationPackage, "metadata.annotations." + source.AnnotationDeployed:
			fields[i].To = operation.NotFetched
		}
	}
	return fields
}
