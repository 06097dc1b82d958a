package plans

import (
	"context"
	"time"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
)

// checkDocument holds the plan against its own rules, the catalogue and the known parties, and makes the snapshot that would run.
func (x *taskStart) checkDocument(ctx context.Context) error {
	object := x.object
	_, wrong := object.Spec.Validate()
	if len(wrong) > 0 {
		return x.refused(problem.Fields(wrong))
	}
	services, err := x.Home.GetServices(ctx, serviceIDs(object.Spec))
	if err != nil {
		return err
	}
	wrong = append(plan.Resolve(object.Spec, services), plan.Unavailable(object.Spec)...)
	if len(wrong) > 0 {
		return x.refused(problem.Fields(wrong))
	}
	x.snapshot = plan.Snapshot{Plan: x.plan, Document: object.Spec, Services: services, Queues: map[string]string{},
		UnreachableBudgetSeconds: int64(x.UnreachableBudget / time.Second)}
	unknown, err := x.findQueues(ctx)
	if err != nil {
		return err
	}
	if len(unknown) > 0 {
		return x.refused(unknown)
	}
	return nil
}

func (x *taskStart) refused(problems []schema.FieldProblem) error {
	return problem.Refused.Because("plan %s cannot be executed, and nothing was changed: %s", x.plan,
		problem.Summary(problems)).Listing(problems)
}

// findQueues fills in the queues of all parties whose workloads are selected, and says which parties nobody knows.
func (x *taskStart) findQueues(ctx context.Context) (unknown []schema.FieldProblem, err error) {
	missing := map[string]bool{}
	for n := range x.snapshot.Document.Items {
		for _, workload := range x.snapshot.Selected(n) {
			party := workload.PartyOrDefault()
			if _, found := x.snapshot.Queues[party]; found || missing[party] {
				continue
			}
			queue, known, err := x.Home.Queue(ctx, party)
			if err != nil {
				return nil, err
			}
			if known {
				x.snapshot.Queues[party] = queue
				continue
			}
			missing[party] = true
			unknown = append(unknown, itemProblem(n, workload, "party "+party+
				" is not known: create a Party object of that name in the engine's namespace, or a namespace of that name in the home cluster"))
		}
	}
	return unknown, nil
}

// itemProblem says what is wrong with a workload of item n, an index into the document.
func itemProblem(n int, workload catalog.Workload, reason string) schema.FieldProblem {
	return schema.FieldProblem{Item: n + 1, Field: itemField(n), Reason: workload.String() + ": " + reason}
}
