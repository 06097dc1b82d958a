package workload

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// listFrom is the number of workloads of one kind and namespace from which on they are listed instead of read one by
// one.
const listFrom = 4

// Preflight checks, without a write, that every request can be carried out: the workload exists, its current state
// allows the operation, and the worker has the permissions. A claim of another release is no refusal here, unless it
// belongs to another engine: the holder may have finished by then, or be dead; Run finds out. It fails with Unreachable
// or Forbidden when the cluster does not answer.
func (a *Activities) Preflight(ctx context.Context, in operation.PreflightRequest) (operation.PreflightResult,
	error) {
	n := len(in.Requests)
	p := &preflight{a: a, requests: in.Requests, reasons: make([]string, n), keys: make([]string, n),
		warnings: make([]string, n)}
	if err := p.run(ctx); err != nil {
		return operation.PreflightResult{}, attempt.ApplicationError(preflightFailure(err))
	}
	var out operation.PreflightResult
	for i, reason := range p.reasons {
		if reason != "" {
			out.Refusals = append(out.Refusals, operation.Refusal{Index: i, Key: p.keys[i], Reason: reason})
		} else if warning := p.warnings[i]; warning != "" {
			out.Warnings = append(out.Warnings, operation.Refusal{Index: i, Reason: warning})
		}
	}
	return out, nil
}

// preflight is one check of a batch. reasons has one entry for each request, "" when nothing prevents it; so have
// warnings, and keys, which name the field of the plan's item that is at fault.
type preflight struct {
	a        *Activities
	requests []operation.Request
	reasons  []string
	keys     []string
	warnings []string
}

// scope is a kind, by its key, in a namespace.
type scope struct{ kind, namespace string }

func (p *preflight) run(ctx context.Context) error {
	groups := map[scope][]int{}
	for i, req := range p.requests {
		if f := p.a.check(req); f != nil {
			p.reasons[i] = f.Message
			continue
		}
		s := scope{req.Workload.WorkloadRef.Lookup().Key(), req.Workload.Namespace}
		groups[s] = append(groups[s], i)
	}
	asked := p.a.cluster.Permissions()
	var needs []kube.Permission
	for s, members := range groups {
		needs = append(needs, p.needs(s, members)...)
	}
	if err := asked.Ask(ctx, needs); err != nil {
		return err
	}
	var jobs []func(ctx context.Context) error
	for s, members := range groups {
		if problem := asked.Lacks(p.needs(s, members)); problem != "" {
			for _, i := range members {
				p.reasons[i] = fmt.Sprintf("%s: %s", p.requests[i].Workload, problem)
			}
			continue
		}
		at := len(members)
		if at < listFrom {
			at = 1
		}
		for some := range slices.Chunk(members, at) {
			jobs = append(jobs, func(ctx context.Context) error { return p.read(ctx, s, some) })
		}
	}
	return kube.Parallel(ctx, jobs)
}

// read reads one workload, or several of one kind and namespace by a list, and checks them.
func (p *preflight) read(ctx context.Context, s scope, members []int) error {
	k := kind(workload.ByKey(s.kind))
	get := func(name string) (*unstructured.Unstructured, error) {
		o, err := p.a.cluster.Get(ctx, kube.Ref{Resource: k.Resource, Namespace: s.namespace, Name: name})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return o, err
	}
	if len(members) > 1 {
		list, err := p.a.cluster.List(ctx, k.Resource, s.namespace, "")
		if err != nil {
			return err
		}
		found := map[string]*unstructured.Unstructured{}
		for i := range list {
			found[list[i].GetName()] = &list[i]
		}
		get = func(name string) (*unstructured.Unstructured, error) { return found[name], nil }
	}
	withoutNamespace := sync.OnceValue(func() string { return p.a.missingNamespace(ctx, s.namespace) })
	covering := p.a.budgets(ctx, s.namespace)
	for _, i := range members {
		o, err := get(p.requests[i].Workload.WorkloadRef.Name)
		if err != nil {
			return err
		}
		if err := p.check(ctx, i, o, withoutNamespace); err != nil {
			return err
		}
		if err := p.checkVersion(ctx, i, o); err != nil {
			return err
		}
		if o != nil && p.reasons[i] == "" {
			p.warn(i, k.observe(o), covering)
		}
	}
	return nil
}

// warn notes the effect of PodDisruptionBudgets on a request.
func (p *preflight) warn(i int, o *object, covering func(*unstructured.Unstructured) []workload.Budget) {
	if p.requests[i].Operation == plan.Start { // which removes no pod
		return
	}
	for _, b := range covering(o.Unstructured) {
		if p.warnings[i] = operation.BudgetWarning(p.requests[i], o.seen, b); p.warnings[i] != "" {
			return
		}
	}
}

// check notes what prevents a request; o is nil when the workload does not exist. Each request is checked by one job,
// so that the slices need no lock.
func (p *preflight) check(ctx context.Context, i int, o *unstructured.Unstructured,
	withoutNamespace func() string) error {
	if o == nil {
		if reason := withoutNamespace(); reason != "" {
			p.reasons[i] = fmt.Sprintf("%s does not exist: %s", p.requests[i].Workload, reason)
			return nil
		}
		p.reasons[i] = fmt.Sprintf("%s does not exist: create it, or remove it from the catalogue",
			p.requests[i].Workload)
		return nil
	}
	seen, err := p.observe(ctx, i, o)
	if err != nil {
		return err
	}
	req := p.requests[i]
	p.reasons[i] = operation.RefusalReason(req, seen)
	if workload.IsForeign(req.Claim, seen.Claim) {
		p.reasons[i] = fmt.Sprintf("%s is being released by %s: %s", req.Workload,
			workload.HolderName(req.Claim, seen.Claim),
			workload.ForeignReason(workload.ParseHolder(seen.Claim)))
	}
	return nil
}

// observe is what the operation reads of its workload.
func (p *preflight) observe(ctx context.Context, i int, o *unstructured.Unstructured) (operation.Observed, error) {
	t := operationJob{job: job{a: p.a, workload: p.requests[i].Workload}, req: p.requests[i]}
	t.kind, _ = kindOf(t.workload.WorkloadRef)
	seen, err := t.observe(ctx, o)
	if err != nil {
		return operation.Observed{}, err
	}
	return seen.seen, nil
}

// checkVersion notes what prevents a package or a build on a workload that is otherwise fit.
func (p *preflight) checkVersion(ctx context.Context, i int, o *unstructured.Unstructured) (err error) {
	req := p.requests[i]
	version := req.Version()
	if version == nil || o == nil || p.reasons[i] != "" {
		return nil
	}
	refusal, err := p.a.versionRefusal(ctx, version, req.Build, req.Workload.Namespace, templateOf(o))
	if refusal.Reason != "" {
		p.keys[i], p.reasons[i] = refusal.Key, req.Workload.String()+": "+refusal.Reason
	}
	return err
}

// missingNamespace is the reason that a namespace does not exist, "" when it does or when this worker may not read it:
// a workload that is missing because its namespace is misspelt must not be created, but looked for elsewhere.
func (a *Activities) missingNamespace(ctx context.Context, namespace string) string {
	_, err := a.namespace(ctx, namespace)
	if !apierrors.IsNotFound(err) {
		return ""
	}
	return fmt.Sprintf("the cluster has no namespace %s; check its spelling and the party, or create it", namespace)
}

// namespace reads a namespace; checks that start at about the same time share one read. The object must not be changed.
func (a *Activities) namespace(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	return recent.Get(ctx, &a.namespaces, name, attempt.CacheAge(ctx),
		func(ctx context.Context) (*unstructured.Unstructured, error) {
			return a.cluster.Get(ctx, kube.Ref{Resource: corev1.SchemeGroupVersion.WithResource("namespaces"),
				Name: name})
		})
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

// needs are the permissions that these requests need, all of one kind and namespace.
func (p *preflight) needs(s scope, members []int) []kube.Permission {
	k := kind(workload.ByKey(s.kind))
	needs := append(kube.Needs(k.Resource, s.namespace, "get", "list", "watch", "patch"),
		kube.Needs(podsResource, s.namespace, "list", "watch", "delete")...)
	if k.Means != workload.Limits { // a Deployment's pods are never removed one by one
		needs = append(needs, kube.NeedsEviction(s.namespace)...)
	}
	if slices.ContainsFunc(members, func(i int) bool {
		r := p.requests[i].Restore
		return r != nil && r.Template != nil
	}) {
		needs = append(needs, kube.Needs(k.revisions(), s.namespace, "list")...)
	}
	return needs
}

// CountUnavailable counts the desired pods of each workload that are not ready. It writes nothing. A cluster that does
// not answer is retried.
func (a *Activities) CountUnavailable(ctx context.Context,
	in operation.UnavailableRequest) (operation.UnavailableResult, error) {
	result := operation.UnavailableResult{Unavailable: make([]int32, len(in.Workloads))}
	for i, w := range in.Workloads {
		k, known := kindOf(w.WorkloadRef)
		if !known || !w.WorkloadRef.Operated() || !a.cluster.Serves(w.Namespace) {
			continue // Run reports what is wrong with it
		}
		o, err := a.cluster.Get(ctx, kube.Ref{Resource: k.Resource, Namespace: w.Namespace, Name: w.WorkloadRef.Name})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return result, attempt.RetriedError(preflightFailure(err))
		}
		counts := k.Count(o.Object)
		result.Unavailable[i] = max(0, counts.Size-counts.Ready)
	}
	return result, nil
}

// budgets finds the PodDisruptionBudgets of a namespace that cover a workload's pods. They are read once, on first use.
// A worker that may not read them finds none; callers for which that matters have checked the permission before.
func (a *Activities) budgets(ctx context.Context, namespace string) func(
	*unstructured.Unstructured) []workload.Budget {
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
