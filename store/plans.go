package store

import (
	"context"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// ListPlans reads one page of the plans in order of name. next is the cursor of the page after it, "" on the last one.
func (s *Store) ListPlans(ctx context.Context, limit int, cursor string) (items []v1alpha1.DeployPlan, next string, err error) {
	list, err := listPage(ctx, s.plans, limit, cursor)
	if err != nil {
		return nil, "", failed(err, "the list of plans")
	}
	return list.Items, list.Continue, nil
}

// GetPlan reads a plan.
func (s *Store) GetPlan(ctx context.Context, name string) (*v1alpha1.DeployPlan, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	found, err := s.plans.Get(ctx, v1alpha1.ObjectName(name), metav1.GetOptions{})
	if err == nil && v1alpha1.IDOf(found) != name {
		return nil, failure.New(failure.NotFound, "plan %s does not exist", name)
	}
	if err != nil {
		return nil, failed(err, "plan "+name)
	}
	return found, nil
}

// PutPlan creates or replaces a plan; its newest task is kept. A plan equal to what is stored writes nothing: changed is false then.
func (s *Store) PutPlan(ctx context.Context, name string, document plan.Document) (created, changed bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return put(ctx, "plan "+name, putter[*v1alpha1.DeployPlan]{
		client: s.plans,
		id:     name,
		empty:  func() *v1alpha1.DeployPlan { return &v1alpha1.DeployPlan{} },
		equal:  func(stored *v1alpha1.DeployPlan) bool { return sameJSON(stored.Spec, document) },
		fill:   func(object *v1alpha1.DeployPlan) { object.Spec = document },
	})
}

// DeletePlan deletes a plan as it was read at that resourceVersion: one that was executed or changed since is a Conflict.
// "" deletes it whatever it is.
func (s *Store) DeletePlan(ctx context.Context, name, resourceVersion string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var options metav1.DeleteOptions
	if resourceVersion != "" {
		options.Preconditions = &metav1.Preconditions{ResourceVersion: &resourceVersion}
	}
	return failed(s.plans.Delete(ctx, v1alpha1.ObjectName(name), options), "plan "+name)
}

// ClaimPlan makes the task the plan's live one, if the plan is still as it was read at that resourceVersion; else it is a Conflict.
// Of any number that claim the same version one wins.
func (s *Store) ClaimPlan(ctx context.Context, name, resourceVersion, task string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	now := metav1.NewTime(time.Now().UTC())
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion},
		"status":   v1alpha1.DeployPlanStatus{Task: task, TaskClaimedAt: &now},
	})
	if err != nil {
		return failed(err, "plan "+name)
	}
	_, err = s.plans.Patch(ctx, v1alpha1.ObjectName(name), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return failed(err, "plan "+name)
}
