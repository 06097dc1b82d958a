package workload

import (
	"context"
	"encoding/json"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workloadops"
)

// Diff reports, without a write, what each request would change: it decides on the current workload, and lets the API
// server make the first write as a dry run. It fails with Unreachable or Forbidden when the cluster does not answer.
func (a *Activities) Diff(ctx context.Context, in workloadops.PreflightRequest) (workloadops.DiffResult, error) {
	out := workloadops.DiffResult{Workloads: make([]workloadops.Diff, len(in.Requests))}
	var jobs []func(ctx context.Context) error
	for i, req := range in.Requests {
		jobs = append(jobs, func(ctx context.Context) (err error) {
			out.Workloads[i], err = a.diff(ctx, req)
			return err
		})
	}
	if err := kube.Parallel(ctx, jobs); err != nil {
		return workloadops.DiffResult{}, attempt.ApplicationError(preflightFailure(err))
	}
	return out, nil
}

func (a *Activities) diff(ctx context.Context, req workloadops.Request) (workloadops.Diff, error) {
	if f := a.check(req); f != nil {
		return workloadops.Diff{Summary: f.Message}, nil
	}
	if req.Operation == plan.CompileDeploy {
		return workloadops.Diff{Changes: true, Summary: "deploys what is built from the branch",
			Unknown: "what the build yields, and whether the pods have it already, is known once the branch's commit " +
				"is built"}, nil
	}
	req.Marker = workloadops.DiffMarker
	if req.Package != nil {
		p := *req.Package
		p.Hidden = false // the query is not shown anyway
		p.SHA256, req.Package = source.DigestOf(p.URL), &p
		req.Marker = p.Marker()
	}
	t := &operationJob{job: job{a: a, workload: req.Workload}, req: req, dry: true}
	t.kind, _ = kindOf(req.Workload.WorkloadRef) // workloadops.Validate accepts no unknown kind
	diff, changed, err := t.diff(ctx)
	for again := 0; changed && err == nil && again < diffRetries; again++ {
		diff, changed, err = t.diff(ctx)
	}
	return diff, err
}

// diffRetries is how often to read a workload again that another client, usually its own controller, has changed
// between the read and the dry run.
const diffRetries = 2

// diff reads once; changed is true when the workload changed after the read, or rejects the change.
func (t *operationJob) diff(ctx context.Context) (diff workloadops.Diff, changed bool, err error) {
	live, err := t.get(ctx)
	if apierrors.IsNotFound(err) {
		return workloadops.Diff{Summary: t.req.Workload.String() + " does not exist"}, false, nil
	}
	if err != nil {
		return workloadops.Diff{}, false, err
	}
	o, err := t.observe(ctx, live)
	if err != nil {
		return workloadops.Diff{}, false, err
	}
	d, err := t.firstAction(ctx, o)
	if err != nil {
		return workloadops.Diff{}, false, err
	}
	fields, refused, changed, err := t.dryRun(ctx, o, d.Write)
	if refused != "" {
		return workloadops.Diff{Summary: d.Reason, Unknown: refused}, changed, nil
	}
	return workloadops.DiffOf(t.req, o.seen, d, fields), false, err
}

// firstAction is the first action of the operation.
func (t *operationJob) firstAction(ctx context.Context, o *object) (workloadops.NextAction, error) {
	seen := o.seen
	seen.Now = t.a.options.Now()
	d := workloadops.Decide(t.req, seen)
	if d.Action != workloadops.ActReadPods {
		return d, nil
	}
	list, err := t.a.pods(ctx, t.kind, o, t.req.MarkerName())
	if err == nil {
		err = t.markRestored(ctx, o, list.pods)
	}
	seen.Pods, seen.PodsSeen = list.pods, true
	return workloadops.Decide(t.req, seen), err
}

// dryRun makes the API server process a write without storing it. It returns the fields of the pod template that it
// changes, or why the server refuses it, possibly because the workload has changed.
func (t *operationJob) dryRun(ctx context.Context, o *object, w *workloadops.Write) (fields []workloadops.FieldChange,
	refused string, changed bool, err error) {
	if w == nil {
		return nil, "", false, nil
	}
	template, err := t.template(ctx, o, w)
	if f := (*failure.Error)(nil); errors.As(err, &f) {
		return nil, f.Message, false, nil
	}
	if err != nil {
		return nil, "", false, err
	}
	body, err := json.Marshal(patchOf(o.Unstructured, w, template))
	if err != nil {
		return nil, "", false, err
	}
	after, err := t.a.cluster.Patch(ctx, t.ref(t.kind.Resource, o.GetName()), body, true)
	if err != nil {
		switch kube.Classify(err) {
		case kube.Rejected, kube.Changed:
			return nil, "its cluster does not accept the change, or it was changed just now: " + kube.Text(err), true,
				nil
		case kube.Refused:
			return nil, "its cluster does not accept the change: " + kube.Text(err), false, nil
		}
		return nil, "", false, err
	}
	return t.markUnfetched(pods.ChangedFields(templateOf(o.Unstructured), templateOf(after))), "", false, nil
}

// markUnfetched replaces values that depend on the digest of a package that is not fetched yet.
func (t *operationJob) markUnfetched(fields []workloadops.FieldChange) []workloadops.FieldChange {
	if t.req.Package == nil || t.req.Package.SHA256 != "" {
		return fields
	}
	for i := range fields {
		switch fields[i].Field {
		case "metadata.annotations." + source.AnnotationPackage, "metadata.annotations." + source.AnnotationDeployed:
			fields[i].To = workloadops.NotFetched
		}
	}
	return fields
}
