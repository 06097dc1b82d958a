package plans

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/workflows"
)

// checkDocument validates the plan against its own rules, the catalogue, the windows and the known parties, and creates
// the snapshot that the task would run.
func (x *taskStart) checkDocument(ctx context.Context) error {
	document := x.object.Spec
	if x.rerun != nil {
		document = x.rerun.document
	}
	_, wrong := document.Validate()
	if err := x.refuse(wrong); err != nil {
		return err
	}
	return x.checkResolved(ctx, document)
}

// checkResolved checks a plan without errors of its own against the catalogue, the windows and the known parties. It
// collects the problems of all items; only those of the plan as a whole are refused at once.
func (x *taskStart) checkResolved(ctx context.Context, document plan.Document) error {
	snapshot, wrong, err := x.resolve(ctx, document)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(wrong, func(e strictyaml.FieldError) bool { return e.Item == 0 }) {
		return x.refuse(wrong)
	}
	x.snapshot = snapshot
	x.snapshot.Plan, x.snapshot.UnreachableBudgetSeconds, x.snapshot.Times = x.plan, x.BudgetSeconds(), x.times
	if x.rerun != nil {
		x.snapshot.RerunOf = x.rerun.task
	}
	x.askable = document.Askable(wrong)
	unknown, err := x.findQueues(ctx)
	if err != nil {
		return err
	}
	x.wrong = slices.Concat(wrong, x.neverOpens(), servicesNeverOpen(x.snapshot), unknown)
	return nil
}

// refuse refuses the execution because of these problems; nil if there are none.
func (x *taskStart) refuse(problems []schema.FieldProblem) error {
	if len(problems) == 0 {
		return nil
	}
	return problem.Refused.Listing(problems, "plan %s cannot be executed, and nothing was changed", x.plan)
}

// findQueues fills in the task queues of all parties with selected workloads, and returns the parties that do not
// exist.
func (x *taskStart) findQueues(ctx context.Context) (unknown []schema.FieldProblem, err error) {
	missing := map[string]bool{}
	for n := range x.snapshot.Document.Items {
		if !x.askable[n] {
			continue
		}
		for _, workload := range x.snapshot.Selected(n) {
			party := workload.PartyOrDefault()
			if _, found := x.snapshot.Queues[party]; found || missing[party] {
				continue
			}
			queue, reason, err := x.QueueOf(ctx, party)
			switch {
			case err != nil:
				return nil, err
			case reason == "":
				x.snapshot.Queues[party] = queue
			default:
				missing[party], unknown = true, append(unknown, itemProblem(n, workload, reason))
			}
		}
	}
	return unknown, nil
}

// itemProblem is a problem with a workload of item n, an index into the document.
func itemProblem(n int, workload catalog.Workload, reason string) schema.FieldProblem {
	return keyFinding(n, "", workload.String()+": "+reason)
}

// keyFinding is a finding on a key of item n; "" means its serviceId.
func keyFinding(n int, key, reason string) schema.FieldProblem {
	return schema.FieldProblem{Item: n + 1, Field: strictyaml.Join(strictyaml.Index("deployPlanItems", n),
		cmp.Or(key, "serviceId")), Reason: reason}
}

// preflightChunk is the number of checks per preflight workflow; it keeps the input below Temporal's limit of 2 MiB.
const preflightChunk = 1500

// itemCheck is one preflight check of an item.
type itemCheck struct {
	// item is an index into the document.
	item    int
	request operation.Request
	// spec is the rollout that will release the workload; nil if the request does it directly.
	spec *strategy.Spec
	// served is the version that the rollout's newest Healthy record shows; nil unless no pod shows which one is stable.
	served *strategy.Revision
}

// preflight asks the workers of all parties whether the task can be executed, and refuses it for their reasons together
// with those that were found before. It writes nothing.
func (x *taskStart) preflight(ctx context.Context) error {
	refusals, absent, err := x.askParties(ctx)
	known := x.refuse(limitFindings(append(slices.Clone(x.wrong), refusals...)))
	switch {
	case len(x.wrong) > 0: // whatever the parties can't say
		return known
	case err != nil:
		return err
	case len(absent) > 0:
		return x.Unreachable(ctx, "plan "+x.plan+" was not executed", absent...)
	}
	return known
}

// askParties returns the refusals of all parties, and which of them can't be reached.
func (x *taskStart) askParties(ctx context.Context) (refusals []schema.FieldProblem, absent []backend.UnreachableParty,
	err error) {
	if x.engine, err = x.Home.Engine(ctx); err != nil {
		return nil, nil, err
	}
	x.warnings = x.timeWarnings(time.Now())
	defer func() { x.warnings = limitFindings(x.warnings) }()
	places := x.itemChecks()
	most := preflightChunk
	if x.diffing {
		most = diffChunk
	}
	for from := 0; from < len(places); from += most {
		chunk := places[from:min(from+most, len(places))]
		outcomes, order, refused, err := x.runPreflight(ctx, chunk)
		if refusals = append(refusals, refused...); err != nil {
			return refusals, absent, err
		}
		if err := x.askWithRecords(ctx, outcomes, order); err != nil {
			return refusals, absent, err
		}
		for i, outcome := range outcomes {
			if outcome.Rollout != nil {
				refusals = append(refusals, x.rolloutRefusals(order[i][0], *outcome.Rollout)...)
			}
			known := slices.ContainsFunc(absent, func(a backend.UnreachableParty) bool {
				return a.Name == outcome.Party
			})
			// each rollout has its own outcome, so that a party may occur repeatedly
			if outcome.Unreachable != "" && !known {
				absent = append(absent, backend.UnreachableParty{Name: outcome.Party,
					Queue: x.snapshot.Queues[outcome.Party], Reason: outcome.Unreachable})
			}
			refusals = append(refusals, x.problemsOf(order[i], outcome.Refusals)...)
			x.warnings = append(x.warnings, x.problemsOf(order[i], outcome.Warnings)...)
			for n, diff := range outcome.Diffs {
				x.diffs = append(x.diffs, workloadDiff{order[i][n], diff})
			}
		}
	}
	return refusals, absent, nil
}

// askWithRecords repeats the checks of rollouts of which no pod shows the stable revision, with the one that their
// newest Healthy record shows, and replaces their outcomes.
func (x *taskStart) askWithRecords(ctx context.Context, outcomes []workflows.PreflightOutcome,
	order [][]itemCheck) (err error) {
	var again []itemCheck
	var replaced []int
	for i, outcome := range outcomes {
		if outcome.Rollout == nil || !outcome.Rollout.StableUnknown {
			continue
		}
		at := order[i][0]
		if at.served, err = x.Home.LastHealthy(ctx, *at.spec); err != nil {
			return err
		}
		if at.served != nil {
			again, replaced = append(again, at), append(replaced, i)
		}
	}
	if len(again) == 0 {
		return nil
	}
	found, _, _, err := x.runPreflight(ctx, again)
	for n, outcome := range found {
		outcomes[replaced[n]] = outcome
	}
	return err
}

// problemsOf converts the refusals of a party to problems of items. It omits items that rollouts release: their direct
// requests are sent for a diff only, and an execution checks the rollout instead.
func (x *taskStart) problemsOf(order []itemCheck, refusals []operation.Refusal) (all []schema.FieldProblem) {
	// A party that is asked in several batches answers them in any order.
	slices.SortStableFunc(refusals, func(a, b operation.Refusal) int { return cmp.Compare(a.Index, b.Index) })
	for _, one := range refusals {
		if at := order[one.Index]; !x.snapshot.RollsOut(at.item) {
			all = append(all, keyFinding(at.item, one.Key, one.Reason)) // the reason names the workload
		}
	}
	return all
}

// itemChecks returns the checks of the task, in the document's order. What is refused already is left out.
func (x *taskStart) itemChecks() []itemCheck {
	var all []itemCheck
	asking := workload.Holder{Engine: x.engine}.String()
	for n, item := range x.snapshot.Document.Items {
		if !x.askable[n] {
			continue
		}
		var by *strategy.ServiceRollout
		if x.snapshot.RollsOut(n) {
			by, _ = strategy.ReadService(x.snapshot.Services[item.ServiceID]) // plan.Resolve has validated it
		}
		for _, request := range operation.Requests(x.snapshot, n) {
			if _, known := x.snapshot.Queues[request.Workload.PartyOrDefault()]; !known ||
				!x.snapshot.CanDo(n, request.Workload) {
				continue
			}
			request.Claim = asking
			at := itemCheck{item: n, request: request}
			if by != nil {
				spec := by.Spec(request.Workload, request.Change())
				at.spec = &spec
			}
			all = append(all, at)
			// for a diff, the direct request shows what the template becomes: that does not depend on steps
			if by != nil && x.diffing {
				all = append(all, itemCheck{item: n, request: request})
			}
		}
	}
	return all
}

// runPreflight runs one preflight workflow. order holds, for each outcome, the checks that the indexes of its refusals
// refer to; refused are refusals that are known without the parties.
func (x *taskStart) runPreflight(ctx context.Context, places []itemCheck) (outcomes []workflows.PreflightOutcome,
	order [][]itemCheck, refused []schema.FieldProblem, err error) {
	input := workflows.PreflightInput{Diff: x.diffing}
	index := map[string]int{}
	var rollouts [][]itemCheck
	for _, at := range places {
		if at.spec != nil {
			check, refusal, err := x.rolloutCheck(ctx, at)
			if err != nil {
				return nil, nil, refused, err
			}
			if refusal != "" {
				refused = append(refused, itemProblem(at.item, at.request.Workload, refusal))
			}
			input.Rollouts, rollouts = append(input.Rollouts, check), append(rollouts, []itemCheck{at})
			continue
		}
		party := at.request.Workload.PartyOrDefault()
		i, known := index[party]
		if !known {
			i = len(order)
			index[party] = i
			input.Parties = append(input.Parties, workflows.PreflightParty{Party: party,
				Queue: x.snapshot.Queues[party]})
			order = append(order, nil)
		}
		input.Parties[i].Requests = append(input.Parties[i].Requests, at.request)
		order[i] = append(order[i], at)
	}
	check := start.Preflight{Backend: x.Backend, Refusal: "plan " + x.plan + " was not executed",
		Summary: "can plan " + x.plan + " be executed?"}
	if len(input.Parties)+len(input.Rollouts) > 0 {
		outcomes, err = check.Run(ctx, input)
	}
	return outcomes, append(order, rollouts...), refused, err
}

// neverOpens refuses the task's times if they never allow a beginning: the plan's own, those of this execution, or both
// combined.
func (x *taskStart) neverOpens() []schema.FieldProblem {
	own := start.NeverOpens("windows", "", x.snapshot.Document.Times)
	if len(own) > 0 || x.times.AnyTime() { // this execution adds no times
		return own
	}
	if never := start.NeverOpens("windows", "the times of this execution, not those of the plan, ",
		x.times); len(never) > 0 {
		return never
	}
	return start.NeverOpens("windows", "the times of this execution and those of the plan together ",
		x.snapshot.AllTimes()...)
}

// servicesNeverOpen refuses items released by rollouts whose policy windows never open.
func servicesNeverOpen(snapshot plan.Snapshot) (all []schema.FieldProblem) {
	for n, times := range policies(snapshot) {
		if why, never := window.NeverOpens(time.Now(), times); never {
			all = append(all, keyFinding(n, "", "the windows of the service's policy "+why))
		}
	}
	return all
}

// timeWarnings returns which times would delay the task if it began now, and which times are in the past.
func (x *taskStart) timeWarnings(now time.Time) (all []schema.FieldProblem) {
	add := func(field, reason string) {
		if reason != "" {
			all = append(all, schema.FieldProblem{Field: field, Reason: reason})
		}
	}
	add("", window.DelayReason(now, x.snapshot.AllTimes()...))
	for n, times := range policies(x.snapshot) {
		if held := window.DelayReason(now, times); held != "" {
			all = append(all, keyFinding(n, "",
				"by the policy of service "+string(x.snapshot.Document.Items[n].ServiceID)+", "+held))
		}
	}
	if x.rerun == nil || !x.rerun.keepsTimes {
		add("notBefore", x.times.Lapsed(now))
	}
	if x.rerun == nil { // for a rerun, the plan's time is expected to be in the past
		add("notBefore", x.snapshot.Document.Lapsed(now))
	}
	return all
}

// allWarnings returns the warnings of a diff or an execution: those of the preflight, and which items have a signature
// or a token in the URL of their package.
func (x *taskStart) allWarnings() []schema.FieldProblem {
	all := slices.Clone(x.warnings)
	for n, item := range x.snapshot.Document.Items {
		if reason := item.ReadableSecret(); reason != "" {
			all = append(all, keyFinding(n, source.KeyPackage, source.KeyPackage+" "+reason))
		}
	}
	return append([]schema.FieldProblem{}, limitFindings(all)...)
}

// policies yields the times of the policies of items released by rollouts, by index into the document.
func policies(snapshot plan.Snapshot) iter.Seq2[int, window.Times] {
	return func(yield func(int, window.Times) bool) {
		for n, item := range snapshot.Document.Items {
			if !snapshot.RollsOut(n) {
				continue
			}
			read, wrong := strategy.ReadService(snapshot.Services[item.ServiceID])
			if len(wrong) > 0 {
				continue // plan.Resolve reports the errors
			}
			if !yield(n, read.Policy.Times) {
				return
			}
		}
	}
}

// rolloutCheck returns the preflight of a rollout that will release a workload of the plan, and why its TrafficRouting
// can't be used. The image that it brings is not known yet.
func (x *taskStart) rolloutCheck(ctx context.Context, at itemCheck) (check workflows.RolloutPreflight, refusal string,
	err error) {
	check, refusal, err = rollouts.NewPreflight(ctx, x.Backend, *at.spec, x.snapshot.Queues[at.spec.Party])
	check.Request.Build, check.Request.Served = at.request.Build, at.served
	return check, refusal, err
}

// rolloutRefusals returns why the preflight of a rollout refuses the plan, and adds its warnings. A claim of another
// release of this engine is only a warning, because that release may have ended when the item begins.
func (x *taskStart) rolloutRefusals(at itemCheck, found rollout.PreflightResult) (refusals []schema.FieldProblem) {
	warnings := found.Notices
	for _, refusal := range found.Refusals {
		key := ""
		if refusal.Field == source.KeyPackage || refusal.Field == source.KeyRepository {
			key = refusal.Field
		}
		refusals = append(refusals, keyFinding(at.item, key, refusal.Reason))
	}
	if found.Holder != "" {
		holder := workload.ParseHolder(found.Holder)
		if holder.Engine.Differs(x.engine) {
			refusals = append(refusals, keyFinding(at.item, "", fmt.Sprintf("%s is held by %s: %s", found.HeldObject,
				holder.NameFor(x.engine), workload.ForeignReason(holder))))
		} else {
			warnings = append([]string{fmt.Sprintf("%s is held by the release %s: the item fails if that still runs "+
				"when it begins", found.HeldObject, holder.WorkflowID)}, warnings...)
		}
	}
	for _, warning := range append(warnings, at.spec.Strategy.Warnings(at.spec.Workload(), found.Replicas)...) {
		x.warnings = append(x.warnings, keyFinding(at.item, "", warning))
	}
	return refusals
}
