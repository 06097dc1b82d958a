package plans

import (
	"cmp"
	"context"
	"slices"
	"time"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/workflows"
)

// checkDocument holds the plan against its own rules, the catalogue and the known parties, and makes the snapshot that would run.
func (x *taskStart) checkDocument(ctx context.Context) error {
	document := x.object.Spec
	if x.rerun != nil {
		document = x.rerun.document
	}
	_, wrong := document.Validate()
	if len(wrong) > 0 {
		return x.refused(problem.Fields(wrong))
	}
	snapshot, wrong, err := x.resolve(ctx, document)
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		return x.refused(problem.Fields(wrong))
	}
	x.snapshot = snapshot
	x.snapshot.Plan, x.snapshot.UnreachableBudgetSeconds, x.snapshot.Times = x.plan, int64(x.UnreachableBudget/time.Second), x.times
	if x.rerun != nil {
		x.snapshot.RerunOf = x.rerun.task
	}
	never := append(x.neverOpens(), servicesNeverOpen(x.snapshot)...)
	if len(never) > 0 {
		return x.refused(never)
	}
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
	return itemFinding(n, workload.String()+": "+reason)
}

// itemFinding is a finding on item n, an index into the document, whose reason says of what.
func itemFinding(n int, reason string) schema.FieldProblem {
	return keyFinding(n, "", reason)
}

// keyFinding is a finding on that key of item n; "": on its service.
func keyFinding(n int, key, reason string) schema.FieldProblem {
	return schema.FieldProblem{Item: n + 1, Field: strictyaml.Join(strictyaml.Index("deployPlanItems", n), cmp.Or(key, "serviceId")), Reason: reason}
}

// preflightChunk bounds one workflow's input: Temporal takes 2 MiB.
const preflightChunk = 1500

// place is where a request of the preflight comes from: an item, as an index into the document.
type place struct {
	item    int
	request workloadops.Request
	// spec is the rollout that is to release the workload; nil where the request itself does.
	spec *strategy.Spec
}

// preflight asks the workers of all parties whether the task could be carried out, without a write.
func (x *taskStart) preflight(ctx context.Context) error {
	var refusals []schema.FieldProblem
	var absent []backend.AbsentParty
	var err error
	if x.engine, err = x.Home.Engine(ctx); err != nil {
		return err
	}
	x.warnings = x.waits(time.Now())
	places := x.places()
	most := preflightChunk
	if x.diffing {
		most = diffChunk
	}
	for from := 0; from < len(places); from += most {
		chunk := places[from:min(from+most, len(places))]
		outcomes, order, err := x.askParties(ctx, chunk)
		if err != nil {
			return err
		}
		for i, outcome := range outcomes {
			if outcome.Rollout != nil {
				told := x.weighRollout(order[i][0], *outcome.Rollout)
				refusals, x.warnings = append(refusals, told.refusals...), append(x.warnings, told.warnings...)
			}
			known := slices.ContainsFunc(absent, func(a backend.AbsentParty) bool { return a.Name == outcome.Party })
			if outcome.Unreachable != "" && !known { // each rollout asks its party by itself
				absent = append(absent, backend.AbsentParty{Name: outcome.Party, Queue: x.snapshot.Queues[outcome.Party], Trouble: outcome.Unreachable})
			}
			refusals = append(refusals, x.found(order[i], outcome.Refusals)...)
			x.warnings = append(x.warnings, x.found(order[i], outcome.Warnings)...)
			for n, diff := range outcome.Diffs {
				x.diffs = append(x.diffs, workloadDiff{order[i][n], diff})
			}
		}
	}
	switch {
	case len(absent) > 0:
		unreachable := x.WhoIsAbsent(ctx, absent...)
		return problem.Unreachable.Because("plan %s was not executed: %s cannot be reached (%s); nothing was changed", x.plan,
			unreachable[0].Field, unreachable[0].Reason).Listing(unreachable)
	case len(refusals) > 0:
		return x.refused(refusals)
	}
	return nil
}

// found is what a party says of operations, but for those that only a diff asks about: an execution asks the rollout in place of them.
func (x *taskStart) found(order []place, said []workloadops.Refusal) (all []schema.FieldProblem) {
	for _, one := range said {
		if at := order[one.Index]; !x.snapshot.RollsOut(at.item) {
			all = append(all, keyFinding(at.item, one.Key, one.Reason)) // it names the workload
		}
	}
	return all
}

// places are the operations of the task, in the document's order.
func (x *taskStart) places() []place {
	var all []place
	asking := workloadops.Holder{Engine: x.engine}.String()
	for n, item := range x.snapshot.Document.Items {
		var by *strategy.OfService
		if x.snapshot.RollsOut(n) {
			by, _ = strategy.ReadService(x.snapshot.Services[item.ServiceID]) // plan.Resolve has read it before
		}
		for _, request := range workloadops.Requests(x.snapshot, n) {
			request.Claim = asking
			at := place{item: n, request: request}
			if by != nil {
				spec := by.Spec(request.Workload, request.Change())
				at.spec = &spec
			}
			all = append(all, at)
			if by != nil && x.diffing { // what the template becomes is the same without steps
				all = append(all, place{item: n, request: request})
			}
		}
	}
	return all
}

// askParties runs one preflight. order holds, for each outcome, the places that its refusals index into.
func (x *taskStart) askParties(ctx context.Context, places []place) (outcomes []workflows.PreflightOutcome, order [][]place, err error) {
	input := workflows.PreflightInput{Diff: x.diffing}
	index := map[string]int{}
	var rollouts [][]place
	for _, at := range places {
		if at.spec != nil {
			check, err := x.rolloutCheck(ctx, at)
			if err != nil {
				return nil, nil, err
			}
			input.Rollouts, rollouts = append(input.Rollouts, check), append(rollouts, []place{at})
			continue
		}
		party := at.request.Workload.PartyOrDefault()
		i, known := index[party]
		if !known {
			i = len(order)
			index[party] = i
			input.Parties = append(input.Parties, workflows.PreflightParty{Party: party, Queue: x.snapshot.Queues[party]})
			order = append(order, nil)
		}
		input.Parties[i].Requests = append(input.Parties[i].Requests, at.request)
		order[i] = append(order[i], at)
	}
	check := start.Preflight{Backend: x.Backend, Refusal: "plan " + x.plan + " was not executed", Summary: "can plan " + x.plan +
		" be executed?"}
	outcomes, err = check.Run(ctx, input)
	return outcomes, append(order, rollouts...), err
}
