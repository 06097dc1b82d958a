package workload

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

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
	t := &operationJob{job: job{a: a, workload: req.Workload}, req: req, dry: true}
	t.kind, _ = kindOf(req.Workload.WorkloadRef) // operation.Validate accepts no unknown kind
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
func (t *operationJob) diff(ctx context.Context) (diff operation.Diff, changed bool, err error) {
	live, err := t.get(ctx)
	if apierrors.IsNotFound(err) {
		return operation.Diff{Summary: t.req.Workload.String() + " does not exist"}, false, nil
	}
	if err != nil {
		return operation.Diff{}, false, err
	}
	o, err := t.observe(ctx, live)
	if err != nil {
		return operation.Diff{}, false, err
	}
	d, err := t.firstAction(ctx, o)
	if err != nil {
		return operation.Diff{}, false, err
	}
	fields, refused, changed, err := t.dryRun(ctx, o, d.Write)
	if refused != "" {
		return operation.Diff{Summary: d.Reason, Unknown: refused}, changed, nil
	}
	return operation.DiffOf(t.req, o.seen, d, fields), false, err
}

// firstAction is the first action of the operation.
func (t *operationJob) firstAction(ctx context.Context, o *object) (workload.NextAction, error) {
	seen := o.seen
	seen.Now = t.a.options.Now()
	d := operation.Decide(t.req, seen)
	if d.Action != workload.ActReadPods {
		return d, nil
	}
	list, err := t.a.pods(ctx, t.kind, o, t.req.MarkerName())
	if err == nil {
		err = t.markRestored(ctx, o, list.pods)
	}
	seen.Pods, seen.PodsSeen = list.pods, true
	return operation.Decide(t.req, seen), err
}

// dryRun makes the API server process a write without storing it. It returns the fields of the pod template that it
// changes, or why the server refuses it, possibly because the workload has changed.
func (t *operationJob) dryRun(ctx context.Context, o *object, w *workload.Write) (fields []workload.FieldChange,
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
	after, err := t.a.cluster.Patch(ctx, t.ref(t.kind.Resource, o.GetName()),
		jsonpatch.Encode(patchOf(o.Unstructured, w, template)), true)
	switch {
	case kube.IsAny(err, kube.Rejected, kube.Changed):
		return nil, "its cluster does not accept the change, or it was changed just now: " + kube.Text(err), true, nil
	case kube.IsAny(err, kube.Refused):
		return nil, "its cluster does not accept the change: " + kube.Text(err), false, nil
	case err != nil:
		return nil, "", false, err
	}
	return t.markUnfetched(pods.ChangedFields(templateOf(o.Unstructured), templateOf(after))), "", false, nil
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
