package workload

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/podpolicy"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

// admit refuses a new pod template that the party's policy does not allow. live is the template that the release began
// from; earlier is true if the new one is an earlier template of the workload, which a user returns to.
func (t *job) admit(template, live map[string]any, earlier bool) error {
	policy := t.a.options.Policy
	if policy.AllowsAll() {
		return nil
	}
	judged := podpolicy.Template{Object: t.workload.String(), Earlier: earlier}
	if packages := t.a.options.Packages; packages != nil {
		judged.FetchImage = packages.Fetcher().Image
	}
	var err error
	if judged.New, err = podpolicy.Parse(template); err != nil {
		return t.refuse("its new pod template cannot be compared with the party's policy: %v", err)
	}
	if judged.Live, err = podpolicy.Parse(live); err != nil {
		judged.Live = nil // then everything counts
	}
	return policy.Check(judged)
}

// admitMetadata refuses the metadata that an extra workload adds to a pod template, if the party's policy does.
func (t *job) admitMetadata(template map[string]any, add *strategy.PodMetadata) error {
	if add == nil {
		return nil
	}
	return t.admit(pods.WithMetadata(template, t.workload.WorkloadRef.Name, add), template, false)
}

func (t *rolloutJob) allowsAll() bool {
	return t.a.options.Policy.AllowsAll() && !t.a.options.Policy.NoTemplatePatch
}

// adds reports whether a release adds a pod template to its workload. It does not add what the workload itself has or
// declares, the template that the release begins from, and the one to which the workload's own controller was moving
// before. Digests in requests do not count, only what the cluster has.
func (t *rolloutJob) adds(l *snapshot, from workload.Template, template map[string]any) bool {
	if t.allowsAll() {
		return false
	}
	has := []string{l.seen.Template, l.seen.Next}
	if saved := l.seen.Saved; saved != nil {
		if from.Revision != "" && from.Revision == saved.Stable {
			return false
		}
		has = append(has, saved.StableTemplate, saved.Declared)
	} else if from.Revision != "" && (t.change.Declared != nil || t.beginning) {
		return false
	}
	return !slices.Contains(has, pods.Digest(template))
}

// admitBegin refuses, before a rollout claims its workload, what it is going to write to pod templates.
func (t *rolloutJob) admitBegin(ctx context.Context, l *snapshot) error {
	if err := t.admitMetadata(templateOf(l.object), t.addedMetadata); err != nil {
		return err
	}
	return t.admitChange(ctx, l)
}

// admitChange refuses the change of a rollout. What else prevents the new pod template is reported when it is written.
func (t *rolloutJob) admitChange(ctx context.Context, l *snapshot) error {
	if t.allowsAll() || t.change.Declared != nil && t.change.Revision == nil { // the workload has it
		return nil
	}
	template, err := t.changedTemplate(ctx, l, t.baseTemplate(l))
	if err != nil {
		return nil
	}
	return t.admitRollout(template, t.stableTemplate(l))
}

// admitRollout refuses the new pod template of a rollout if the party's policy does.
func (t *rolloutJob) admitRollout(template, stable map[string]any) error {
	if len(t.change.TemplatePatch) > 0 {
		if err := t.a.options.Policy.CheckTemplatePatch(t.workload.String()); err != nil {
			return err
		}
	}
	return t.admit(template, stable, t.change.Revision != nil)
}

// policyRefusal returns why the party's policy refuses the pod template that an operation would set; "" if it does not,
// or if the template is not known yet, because its image is still to be built.
func (t *operationJob) policyRefusal(ctx context.Context, live *unstructured.Unstructured) (string, error) {
	if t.a.options.Policy.AllowsAll() {
		return "", nil
	}
	template, v := t.restoreTemplate, t.req.Version()
	if image, is := v.(source.Image); v != nil && (!is || image.Reference != "") {
		var err error
		if template, err = t.withVersion(ctx, v, templateOf(live)); err != nil {
			return reasonOf(err)
		}
	}
	if template == nil {
		return "", nil
	}
	return reasonOf(t.admit(template, templateOf(live), t.restoreTemplate != nil))
}

// reasonOf returns the message of a refusal; other errors are returned.
func reasonOf(err error) (string, error) {
	var f *failure.Error
	if errors.As(err, &f) {
		return f.Message, nil
	}
	return "", err
}
