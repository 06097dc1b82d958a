package store

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// ListPlans reads one page of the plans in order of name. next is the cursor of the next page, "" on the last one.
func (s *Store) ListPlans(ctx context.Context, limit int, cursor string) (items []v1alpha1.DeployPlan, next string,
	err error) {
	return s.plans.page(ctx, limit, cursor)
}

// GetPlan reads a plan.
func (s *Store) GetPlan(ctx context.Context, name string) (*v1alpha1.DeployPlan, error) {
	return s.plans.get(ctx, name)
}

// PutPlan creates or replaces a plan; its newest task is kept. An equal plan writes nothing: changed is false then.
func (s *Store) PutPlan(ctx context.Context, name string, document plan.Document) (created, changed bool, err error) {
	return put(ctx, s.plans, name, document, func(p *v1alpha1.DeployPlan) *plan.Document { return &p.Spec })
}

// CreatePlan creates a plan; an existing one of its name is a Conflict.
func (s *Store) CreatePlan(ctx context.Context, name string, document plan.Document) error {
	fresh := newObject[v1alpha1.DeployPlan, *v1alpha1.DeployPlan](name)
	fresh.Spec = document
	return s.plans.create(ctx, fresh)
}

// DeletePlan deletes a plan if it is still at that resourceVersion; if it was executed or changed since, it is a
// Conflict. "" deletes it at any version.
func (s *Store) DeletePlan(ctx context.Context, name, resourceVersion string) error {
	if resourceVersion == "" {
		return s.plans.delete(ctx, name, nil)
	}
	return s.plans.delete(ctx, name, &metav1.Preconditions{ResourceVersion: &resourceVersion})
}

// ClaimPlan makes the task the plan's current one if the plan is still at that resourceVersion; otherwise it is a
// Conflict. Of several claims of one version, one wins.
func (s *Store) ClaimPlan(ctx context.Context, name, resourceVersion, task string) error {
	_, err := patch(ctx, s.plans, v1alpha1.ObjectName(name), map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion},
		"status":   v1alpha1.DeployPlanStatus{Task: task, TaskClaimedAt: new(metav1.NewTime(time.Now().UTC()))},
	}, "status")
	return asFailure(err, "plan "+name)
}

// LiveTask reads the newest task of a plan, "" if the plan has none or does not exist, and the plan's version.
func (s *Store) LiveTask(ctx context.Context, name string) (task, resourceVersion string, err error) {
	found, err := s.GetPlan(ctx, name)
	if err != nil {
		return "", "", failure.Ignore(err, failure.NotFound)
	}
	return found.Status.Task, found.ResourceVersion, nil
}
