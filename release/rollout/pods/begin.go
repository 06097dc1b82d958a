package pods

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// Refuses says why a rollout cannot begin on a workload as it is, "" when it can.
func Refuses(tech Technique, s rollout.Subject, seen Observed) string {
	switch {
	case seen.Deleting:
		return fmt.Sprintf("%s is being deleted", s.Workload)
	case seen.SavedProblem != "":
		return fmt.Sprintf("%s: what an earlier rollout saved in the annotation %s cannot be read (%s): "+
			"put its settings right by hand and remove that annotation", s.Workload, rollout.AnnotationSaved, seen.SavedProblem)
	case seen.Busy != "":
		return fmt.Sprintf("%s: an unfinished START, STOP or RESTART has left borrowed settings on it: run that once more, which gives them back",
			s.Workload)
	case seen.Repairer != "":
		return rollout.Repaired(s.Workload.String(), seen.Repairer).Message
	case seen.Replicas == 0:
		return fmt.Sprintf("%s has no pods: start it first, a rollout needs pods to replace", s.Workload)
	}
	if reason := tech.refuses(opened(seen)); reason != "" {
		return fmt.Sprintf("%s %s", s.Workload, reason)
	}
	if seen.Declared != "" {
		return refusesDeclared(s, seen)
	}
	return ""
}

// Unsettled says why a rollout cannot begin yet on a workload that was created or changed a moment ago: its own update is still under way,
// and there is no single stable revision. "" when it can. Time cures it.
func Unsettled(tech Technique, s rollout.Subject, seen Observed) string {
	if seen.Declared != "" {
		return unsettledDeclared(s, seen)
	}
	switch _, known := tech.stable(seen); {
	case seen.Lagging():
		return fmt.Sprintf("%s: its controller has not processed its last change yet", s.Workload)
	case seen.Updated < seen.Replicas || seen.Total > seen.Updated:
		return fmt.Sprintf("%s is still being updated: %d of %d pods are of its newest template, %d in all", s.Workload, seen.Updated,
			seen.Replicas, seen.Total)
	case !known:
		return fmt.Sprintf("%s: its controller has not recorded the revision that it runs yet", s.Workload)
	}
	return ""
}

// Begin decides on the claim and on what is saved, in one write, before the first change.
func Begin(tech Technique, req rollout.BeginRequest, seen Observed) NextAction {
	s := req.Subject
	switch {
	case seen.Deleting:
		return failf(failure.Gone, "%s is being deleted by somebody else", s.Workload)
	case seen.Repairer != "" && placed(tech, s, seen): // it is theirs until they are done, and not as it was
		return next(workloadops.Fail(rollout.Repaired(s.Workload.String(), seen.Repairer)))
	case seen.SavedProblem != "", seen.Repairer != "":
		return failf(failure.Refused, "%s", Refuses(tech, s, seen))
	case seen.Claim == s.Claim && seen.Saved == nil:
		return failf(failure.ClaimLost, "%s: somebody removed the annotation %s: look at its template and update settings by hand", s.Workload,
			rollout.AnnotationSaved)
	case seen.Claim == s.Claim:
		d := begun(req, seen, *seen.Saved)
		d.Begun.Placed = d.Begun.Adopted == nil && placed(tech, s, seen)
		return d
	case seen.Claim != "" && !workloadops.MayTakeOver(s.Claim, s.TakeOver, seen.Claim):
		return next(workloadops.Claimed(s.Workload, s.Claim, seen.Claim))
	case seen.Saved != nil && workloadops.IsForeign(s.Claim, seen.Saved.Claim):
		return failf(failure.Refused, "%s carries what %s has left on it: %s", s.Workload, workloadops.Told(s.Claim, seen.Saved.Claim),
			workloadops.ForeignReason(workloadops.ParseHolder(seen.Saved.Claim)))
	case seen.Saved != nil:
		return takeOver(s, seen)
	case req.Adopt:
		return begins(rollout.BeginResult{Message: "nothing of an earlier release is on it"}, seen)
	}
	if reason := Refuses(tech, s, seen); reason != "" {
		return failf(failure.Refused, "%s", reason)
	}
	if reason := Unsettled(tech, s, seen); reason != "" {
		if d, settles := settle(req, seen); settles {
			return d
		}
		return unsettled(req, seen, reason)
	}
	saved := save(tech, req, seen)
	d := set(fmt.Sprintf("take the claim and save what the rollout borrows; revision %s serves", saved.Stable), &workloadops.Write{
		Step: "begin", Held: seen.Claim, Fresh: true, Claim: s.Claim,
		Annotations: map[string]string{rollout.AnnotationSaved: saved.String(),
			rollout.AnnotationRecover: rollout.RecoverText(saved, s.Workload)},
		Remove: []string{gate.AnnotationHeld}, // it is saved from now on
	})
	if saved.Declared != "" {
		beginDeclared(tech, d.Write, seen, saved)
	}
	d.Ends, d.Begun = true, begun(req, seen, saved).Begun
	return d
}

// placed says that this very release holds the workload, and that its template is not the stable one any more.
func placed(tech Technique, s rollout.Subject, seen Observed) bool {
	return seen.Claim == s.Claim && seen.Saved != nil && seen.Saved.Declared == "" && !tech.untouched() && seen.Template != seen.Saved.StableTemplate
}

// BeginMoving is Begin whose write is the first of the Move as well that follows at once, if that sets a template which is known, and borrows nothing: the
// workload's own controllers, and everybody who watches, have one change to see instead of two. Where something is borrowed the claim comes first, so that the
// stable ReplicaSet has a copy of what is saved: kubectl's undo puts its annotations in the place of the Deployment's. first is the Move that follows on an
// answer, nil if something else does.
func BeginMoving(tech Technique, req rollout.BeginRequest, seen Observed, first func(rollout.BeginResult) *rollout.MoveRequest) NextAction {
	d := Begin(tech, req, seen)
	if d.Write == nil || d.Begun == nil {
		return d
	}
	move := first(*d.Begun)
	saved, err := ReadSaved(req.Workload.WorkloadRef, d.Write.Annotations[rollout.AnnotationSaved])
	if move == nil || err != nil || saved.Declared != "" {
		return d
	}
	seen.Claim, seen.Saved, seen.Held, seen.Expected = req.Claim, saved, gate.Held{}, move.Foreseen.Digest(seen.UID, seen.Template)
	if seen.Expected == "" { // the Move finds out by a dry run
		return d
	}
	m := Move(tech, *move, seen)
	if m.Write == nil || m.Write.Template == nil || len(m.Write.Settings) > 0 || m.Ends {
		return d
	}
	d.Write, d.Reason, d.Begun.Placed = together(d.Write, m.Write), d.Reason+"; "+m.Reason, true
	return d
}

// together is a claim's write that makes a move's as well.
func together(claim, move *workloadops.Write) *workloadops.Write {
	w := *move
	w.Step, w.Held, w.Fresh, w.Claim = claim.Step+"+"+move.Step, claim.Held, claim.Fresh, claim.Claim
	w.Annotations, w.Remove = maps.Clone(claim.Annotations), slices.Concat(claim.Remove, move.Remove)
	maps.Copy(w.Annotations, move.Annotations)
	return &w
}

// beginDeclared adds to the first write what a workload carries whose own template is the command.
func beginDeclared(tech Technique, w *workloadops.Write, seen Observed, saved rollout.Saved) {
	if seen.Template == saved.Declared { // what had to give way before it is not declared any more
		w.Remove = append(w.Remove, rollout.AnnotationNext)
	}
	if recalled, _ := seen.Recall(); recalled.Template == saved.Declared { // nobody else has declared it
		w.KeepTemplate, w.KeepRevision = rollout.AnnotationNext, recalled.Name
	}
	w.Annotations[rollout.AnnotationInProgressing] = rollout.InProgressing(saved.Name)
	w.Labels = map[string]string{rollout.LabelStableRevision: saved.Stable}
	if original, told := originalStrategy(tech, saved); told {
		w.Annotations[rollout.AnnotationOriginalStrategy] = original.String()
	}
}

// unsettled refuses, tells or waits within the deadline while the workload's own update is under way. Nothing is written.
func unsettled(req rollout.BeginRequest, seen Observed, reason string) NextAction {
	switch {
	case req.Unsettled == rollout.UnsettledTell:
		return begins(rollout.BeginResult{Unsettled: reason, Message: reason}, seen)
	case req.Unsettled != rollout.UnsettledWait && seen.Lagging(): // a moment, whatever the policy says
		return judge(req.Subject, seen, "", reason, 0).with(rollout.MoveResult{Replicas: seen.Replicas})
	case req.Unsettled != rollout.UnsettledWait:
		return failf(failure.Refused, "%s: wait until `kubectl rollout status` says that it is done, then start the rollout again", reason)
	case seen.Elapsed < deadlineOf(req.Subject):
		return wait(reason)
	case !seen.PodsSeen:
		return look("the time is up: see what the pods say")
	}
	return failf(failure.Refused, "%s, and that did not end within %d s (%s): nothing was changed; "+
		"start the rollout again when it is done, or give it more time with policy.settleSeconds", reason, req.DeadlineSeconds, why(seen, ""))
}

// begun is the answer: what was saved now, or by an earlier attempt, or by somebody else (then it is adopted).
func begun(req rollout.BeginRequest, seen Observed, saved rollout.Saved) NextAction {
	hash := saved.Stable // of a revision that is not there any more
	stable, there := seen.Find(saved.Stable)
	if there {
		hash = stable.Hash
	}
	result := rollout.BeginResult{UID: seen.UID, Stable: saved.Stable, StableHash: hash, StableTemplate: saved.StableTemplate, StableImages: stable.Images,
		StablePackage: stable.Package, Whole: saved.Declared != "" && saved.Declared == saved.StableTemplate, Message: fmt.Sprintf("begun: %d pods of revision %s serve", seen.Replicas, saved.Stable)}
	if saved.Claim != req.Claim {
		result.Adopted = &rollout.Adopted{Style: saved.Style, Routings: saved.Routings, NoCanary: saved.DisableGenerateCanaryService,
			TrafficRouting: saved.TrafficRouting}
		result.Message = fmt.Sprintf("the unfinished rollout %s was adopted: it is brought home first", saved.Name)
	}
	return begins(result, seen)
}

func begins(result rollout.BeginResult, seen Observed) NextAction {
	result.Replicas, result.Generation = seen.Replicas, seen.Generation
	d := done(result.Message)
	d.Begun = &result
	return d
}

func save(tech Technique, req rollout.BeginRequest, seen Observed) rollout.Saved {
	stable, _ := tech.stable(seen)
	template := seen.Template
	if seen.Declared != "" {
		seen = opened(seen)
		stable, _ = seen.oneVersion()
		template = stable.Template
	}
	saved := rollout.Saved{
		Name: req.Name, WorkflowID: workloadops.ParseHolder(req.Claim).WorkflowID, Claim: req.Claim, Style: req.Strategy.Style,
		Stable: stable.Name, StableNumber: stable.Number, StableTemplate: template, Declared: seen.Declared, Replicas: seen.Replicas,
		Settings: map[string]json.RawMessage{}, Routings: req.Strategy.Routings,
		DisableGenerateCanaryService: req.Strategy.DisableGenerateCanaryService,
		TrafficRouting:               req.Strategy.TrafficRoutingRef,
	}
	for _, path := range tech.Pointers() {
		saved.Settings[path] = json.RawMessage("null")
		if own := seen.Settings[path]; !workloadops.AbsentJSON(own) {
			saved.Settings[path] = own
		}
	}
	switch req.Strategy.Style {
	case strategy.StyleCanary:
		saved.CanaryWorkload = req.Workload.WorkloadRef.Name + strategy.CanarySuffix
		saved.CanaryMetadata = req.Strategy.PatchPodTemplateMetadata
	case strategy.StyleBlueGreen:
		for _, a := range seen.Autoscalers {
			saved.Autoscalers = append(saved.Autoscalers, a.Name)
		}
	}
	return saved
}
