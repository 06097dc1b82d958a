package pods

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// RefusalReason returns why a rollout cannot begin on the workload in its current state, "" if it can.
func RefusalReason(tech Technique, s rollout.Subject, seen Observed) string {
	switch {
	case seen.Deleting:
		return fmt.Sprintf("%s is being deleted", s.Workload)
	case seen.SavedProblem != "":
		return fmt.Sprintf("%s: what an earlier rollout saved in the annotation %s cannot be read (%s): "+
			"repair its settings manually and remove that annotation", s.Workload, workload.AnnotationRollout,
			seen.SavedProblem)
	case seen.Busy != "":
		return fmt.Sprintf("%s: an unfinished START, STOP or RESTART has left borrowed settings on it: run that "+
			"operation again to restore them", s.Workload)
	case seen.Repairer != "":
		return rollout.UnderRepair(s.Workload.String(), seen.Repairer).Message
	case seen.Replicas == 0:
		return fmt.Sprintf("%s has no pods: start it first, a rollout needs pods to replace", s.Workload)
	}
	if reason := tech.refusalReason(withoutHold(seen)); reason != "" {
		return fmt.Sprintf("%s %s", s.Workload, reason)
	}
	if seen.Declared != "" {
		return declaredRefusalReason(s, seen)
	}
	return ""
}

// UnsettledReason returns why a rollout cannot begin yet on a workload that was created or changed a moment ago, "" if
// it can. Its own update is still under way, so there is no single stable revision. This passes with time.
func UnsettledReason(tech Technique, s rollout.Subject, seen Observed) string {
	if seen.Declared != "" {
		return declaredUnsettledReason(s, seen)
	}
	switch _, known := seen.liveRevision(); {
	case seen.Lagging():
		return fmt.Sprintf("%s: its controller has not processed its last change yet", s.Workload)
	case seen.Updated < seen.Replicas || seen.Total > seen.Updated:
		return fmt.Sprintf("%s is still being updated: %d of %d pods are of its newest template, %d in all", s.Workload,
			seen.Updated, seen.Replicas, seen.Total)
	case !known:
		return fmt.Sprintf("%s: its controller has not recorded the revision that it runs yet", s.Workload)
	}
	return ""
}

// Begin decides on the write that takes the claim and saves what the rollout borrows, before the first change.
func Begin(tech Technique, req rollout.BeginRequest, seen Observed) NextAction {
	s := req.Subject
	seen = withoutEnded(s, seen)
	switch {
	case seen.Deleting:
		return failf(failure.Gone, "%s is being deleted by another client", s.Workload)
	// it is under repair, and its template has already changed
	case seen.Repairer != "" && templatePlaced(tech, s, seen):
		return next(workload.Fail(rollout.UnderRepair(s.Workload.String(), seen.Repairer)))
	case seen.SavedProblem != "", seen.Repairer != "":
		return failf(failure.Refused, "%s", RefusalReason(tech, s, seen))
	case seen.Claim == s.Claim && seen.Saved == nil:
		return failf(failure.ClaimLost, "%s: another client removed the annotation %s: check its template and update "+
			"settings manually", s.Workload, workload.AnnotationRollout)
	case seen.Claim == s.Claim:
		d := answerBegin(req, seen, *seen.Saved)
		d.Begun.TemplateWritten = d.Begun.Adopted == nil && templatePlaced(tech, s, seen)
		return d
	case seen.Claim != "" && !workload.MayTakeOver(s.Claim, s.TakeOver, seen.Claim):
		return next(workload.FailClaimed(s.Workload, s.Claim, seen.Claim))
	case seen.Saved != nil && workload.IsForeign(s.Claim, seen.Saved.Claim):
		return failf(failure.Refused, "%s carries what %s has left on it: %s", s.Workload,
			workload.HolderName(s.Claim, seen.Saved.Claim),
			workload.ForeignReason(workload.ParseHolder(seen.Saved.Claim)))
	case mustAsk(req, seen):
		return next(workload.FailClaimed(s.Workload, s.Claim, seen.Saved.Claim))
	case seen.Saved != nil:
		return takeOver(s, seen)
	case req.Adopt:
		return doneBegin(rollout.BeginResult{Message: "it carries nothing of an earlier release"}, seen)
	}
	if reason := RefusalReason(tech, s, seen); reason != "" {
		return failf(failure.Refused, "%s", reason)
	}
	return beginFree(tech, req, seen)
}

// beginFree is Begin on a workload that carries nothing of a release.
func beginFree(tech Technique, req rollout.BeginRequest, seen Observed) NextAction {
	reason := UnsettledReason(tech, req.Subject, seen)
	// while it waits, the pods are read from time to time
	waits := reason != "" && req.Unsettled == rollout.UnsettledWait && len(seen.Held) == 0
	if !seen.PodsSeen && !waits && MayHang(seen) {
		return readPods("read whether its own update hangs")
	}
	u, hangs := Hung(tech, seen)
	if hangs && !restoresBeforeBegin(tech, seen, u) {
		return beginOver(tech, req, seen, u)
	}
	if reason != "" {
		if d, settles := finishOwnUpdate(req, seen, u); settles {
			return d
		}
		return handleUnsettled(req, seen, reason)
	}
	stable, _ := seen.liveRevision()
	template := seen.Template
	if seen.Declared != "" {
		stable, _ = seen.onlyRevision()
		template = stable.Template
	}
	return takeClaim(tech, req, seen, newSaved(tech, req, seen, stable, template))
}

// templatePlaced reports whether this release holds the workload and its template is no longer the stable one.
func templatePlaced(tech Technique, s rollout.Subject, seen Observed) bool {
	return seen.Claim == s.Claim && seen.Saved != nil && seen.Saved.Declared == "" && !tech.usesExtraWorkload() &&
		seen.Template != seen.Saved.StableTemplate
}

// BeginWithMove is Begin combined with the write of the Move that follows, so that controllers and watchers see one
// change instead of two. The writes are combined only if that Move sets a template whose digest is known and borrows
// nothing. If it borrows, the claim is written first, so that the stable ReplicaSet gets a copy of what is saved:
// `kubectl rollout undo` replaces the Deployment's annotations by the ReplicaSet's. first returns the Move that follows
// a BeginResult, nil if something else follows.
func BeginWithMove(tech Technique, req rollout.BeginRequest, seen Observed,
	first func(rollout.BeginResult) *rollout.MoveRequest) NextAction {
	seen = withoutEnded(req.Subject, seen)
	d := Begin(tech, req, seen)
	if d.Write == nil || d.Begun == nil || d.Write.Template != nil {
		return d
	}
	move := first(*d.Begun)
	saved, err := ReadSaved(req.Workload.WorkloadRef, d.Write.Annotations[workload.AnnotationRollout])
	if move == nil || err != nil || saved.Declared != "" {
		return d
	}
	seen.Claim, seen.Saved, seen.Held, seen.Expected = req.Claim, saved, gate.Held{},
		move.Predicted.Digest(seen.UID, seen.Template)
	if seen.Expected == "" { // the Move determines it by a dry run
		return d
	}
	m := Move(tech, *move, seen)
	if m.Write == nil || m.Write.Template == nil || len(m.Write.Settings) > 0 || m.Ends {
		return d
	}
	w := d.Write
	w.Step, w.Template, w.KeepTemplate = w.Step+"+"+m.Write.Step, m.Write.Template, m.Write.KeepTemplate
	annotate(w, m.Write.Annotations)
	w.Remove = append(w.Remove, m.Write.Remove...)
	d.Reason, d.Begun.TemplateWritten = d.Reason+"; "+m.Reason, true
	return d
}

// beginDeclared adds to the first write what is needed for a workload that declares the new version in its own
// template.
func beginDeclared(tech Technique, w *workload.Write, seen Observed, saved rollout.Saved) {
	if seen.Template == saved.Declared { // a template that was set aside earlier is no longer declared
		w.Remove = append(w.Remove, rollout.AnnotationNext)
	}
	// an undo: no client has written this template to the workload
	if recalled, _ := seen.RecalledRevision(); recalled.Template == saved.Declared {
		w.KeepTemplate, w.KeepRevision = rollout.AnnotationNext, recalled.Name
	}
	w.Annotations[rollout.AnnotationInProgressing] = rollout.InProgressing(saved.Name)
	w.Labels = map[string]string{rollout.LabelStableRevision: saved.Stable}
	if k, is := tech.(interface { // of a blue-green other tools read the limits from before
		original(saved rollout.Saved) rollout.OriginalStrategy
	}); is {
		w.Annotations[rollout.AnnotationOriginalStrategy] = k.original(saved).String()
	}
}

// handleUnsettled refuses, reports or waits within the deadline, as the request asks, while the workload's own update
// is under way. It writes nothing.
func handleUnsettled(req rollout.BeginRequest, seen Observed, reason string) NextAction {
	switch {
	case req.Unsettled == rollout.UnsettledReport:
		return doneBegin(rollout.BeginResult{Unsettled: reason, Message: reason}, seen)
	case req.Unsettled != rollout.UnsettledWait && seen.Lagging(): // it takes a moment, under any policy
		return waitOrFail(req.Subject, seen, "", reason, 0).withNumbers(rollout.MoveResult{Replicas: seen.Replicas})
	case req.Unsettled != rollout.UnsettledWait:
		return failf(failure.Refused, "%s: wait until `kubectl rollout status` reports success, then start the "+
			"rollout again", reason)
	case seen.Elapsed < deadlineOf(req.Subject):
		return wait(reason)
	case !seen.PodsSeen:
		return readPods("the deadline has passed: read the pods' status")
	}
	return failf(failure.Refused, "%s, and that did not end within %d s (%s): nothing was changed; "+
		"start the rollout again when it is done, or give it more time with policy.settleSeconds", reason,
		req.DeadlineSeconds, explain(seen, ""))
}

// answerBegin returns the answer of Begin from what was saved now, by an earlier attempt, or by another release, which
// is then adopted.
func answerBegin(req rollout.BeginRequest, seen Observed, saved rollout.Saved) NextAction {
	hash := saved.Stable // if the revision no longer exists
	stable, there := seen.RevisionByName(saved.Stable)
	if there {
		hash = stable.Hash
	}
	result := rollout.BeginResult{UID: seen.UID, Stable: saved.Stable, StableHash: hash,
		StableTemplate: saved.StableTemplate, StableImages: stable.Images,
		StablePackage: stable.Package, Over: saved.Over,
		AlreadyComplete: saved.Declared != "" && saved.Declared == saved.StableTemplate,
		Message:         fmt.Sprintf("begun: %d pods of revision %s serve", seen.Replicas, saved.Stable)}
	if saved.Claim != req.Claim {
		result.Adopted = &rollout.Adopted{Style: saved.Style, Routings: saved.Routings,
			NoCanary: saved.DisableGenerateCanaryService, TrafficRouting: saved.TrafficRouting}
		result.Message = fmt.Sprintf("the unfinished rollout %s was adopted: it is finalised first", saved.Name)
	}
	return doneBegin(result, seen)
}

func doneBegin(result rollout.BeginResult, seen Observed) NextAction {
	result.Replicas, result.Generation = seen.Replicas, seen.Generation
	d := done(result.Message)
	d.Begun = &result
	return d
}

// newSaved returns what the rollout saves: the stable revision with the digest of its template, and what it borrows.
func newSaved(tech Technique, req rollout.BeginRequest, seen Observed, stable Revision, template string) rollout.Saved {
	if seen.Declared != "" {
		seen = withoutHold(seen)
	}
	saved := rollout.Saved{
		UID: seen.UID, Name: req.Name, WorkflowID: workload.ParseHolder(req.Claim).WorkflowID, Claim: req.Claim,
		Style:  req.Strategy.Style,
		Stable: stable.Name, StableNumber: stable.Number, StableTemplate: template, Declared: seen.Declared,
		Replicas: seen.Replicas,
		Settings: map[string]json.RawMessage{}, Routings: req.Strategy.Routings,
		DisableGenerateCanaryService: req.Strategy.DisableGenerateCanaryService,
		TrafficRouting:               req.Strategy.TrafficRoutingRef,
	}
	for _, path := range tech.Pointers() {
		saved.Settings[path] = json.RawMessage("null")
		if own := seen.Settings[path]; !workload.AbsentJSON(own) {
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

// ForDeclared returns the technique for a rollout. declared is true if the workload's own template is the new
// version's.
func ForDeclared(tech Technique, declared bool) Technique {
	if k, extra := tech.(deploymentExtra); extra {
		k.declared = declared
		return k
	}
	return tech
}

// withoutHold returns the snapshot with the fields that hold its change of template set to their values from before.
func withoutHold(seen Observed) Observed {
	if len(seen.Held) == 0 {
		return seen
	}
	settings := maps.Clone(seen.Settings)
	for _, pointer := range slices.Sorted(maps.Keys(seen.Held)) {
		for path := range seen.Settings {
			if strings.HasPrefix(pointer, path+"/") {
				settings[path] = withValue(settings[path], pointer[len(path):], seen.Held[pointer])
			}
		}
		settings[pointer] = seen.Held[pointer]
	}
	seen.Settings = settings
	return seen
}

// withValue sets the value at a pointer within an object. null removes it, and its parent object if that becomes empty:
// an API server would fill in defaults there.
func withValue(object json.RawMessage, pointer string, value json.RawMessage) json.RawMessage {
	root, v := map[string]any{}, any(nil)
	absent := workload.AbsentJSON(object)
	if json.Unmarshal(value, &v) != nil || absent && v == nil || !absent && json.Unmarshal(object, &root) != nil {
		return object
	}
	if v != nil {
		jsonpatch.Put(root, pointer, v)
	}
	for empty := v == nil; empty; {
		jsonpatch.Drop(root, pointer)
		pointer = pointer[:strings.LastIndexByte(pointer, '/')]
		parent, _ := jsonpatch.At(root, pointer)
		fields, is := parent.(map[string]any)
		empty = is && len(fields) == 0
	}
	return jsonpatch.Encode(root)
}

// declaredUnsettledReason returns why a rollout of what the workload declares cannot begin yet: not all pods are of one
// version, which would be the stable one.
func declaredUnsettledReason(s rollout.Subject, seen Observed) string {
	stable, one := seen.onlyRevision()
	total, _ := seen.Count(stable)
	switch {
	case seen.Lagging():
		return fmt.Sprintf("%s: its controller has not processed its last change yet", s.Workload)
	case !one:
		return fmt.Sprintf("%s has pods of more than one version: its own update was under way when its pod template "+
			"was changed", s.Workload)
	case total < seen.Replicas:
		return fmt.Sprintf("%s has %d of its %d pods", s.Workload, total, seen.Replicas)
	}
	return ""
}

// finishOwnUpdate lets the workload's own controller finish the update that was under way when its pod template was
// changed: the release has to begin from the result. If that update hangs, its controller brings the stable version
// back instead. The changed template is kept in an annotation meanwhile.
func finishOwnUpdate(req rollout.BeginRequest, seen Observed, u HungUpdate) (NextAction, bool) {
	_, one := seen.onlyRevision()
	to, there := seen.newest(func(r Revision) bool {
		total, _ := seen.Count(r)
		return total > 0 && r.Template != seen.Declared
	})
	if u.Trouble != "" { // it hangs
		to = u.Stable
	}
	if req.Unsettled != rollout.UnsettledWait || seen.Declared == "" || one || !there || seen.Lagging() ||
		seen.Template != seen.Declared || len(seen.Held) == 0 {
		return NextAction{}, false
	}
	w := &workload.Write{Step: "settle", OnlyIfUnchanged: true, Template: &workload.Template{Revision: to.Name},
		KeepTemplate: rollout.AnnotationNext, Remove: []string{gate.AnnotationHeld}}
	for _, pointer := range slices.Sorted(maps.Keys(seen.Held)) {
		w.Settings = append(w.Settings, workload.Setting{Path: pointer, Value: seen.Held[pointer]})
	}
	return set(fmt.Sprintf("let its own controller bring all pods to revision %s first", to.Name), w), true
}

// declaredRefusalReason returns why what the workload declares cannot be released, "" if it can.
func declaredRefusalReason(s rollout.Subject, seen Observed) string {
	_, kept := seen.RecalledRevision()
	switch {
	case seen.HeldProblem != "":
		return fmt.Sprintf("%s: %s: repair the fields that hold its pods manually and remove that annotation",
			s.Workload, seen.HeldProblem)
	case seen.Recalled != nil && (len(seen.Held) > 0 || seen.Next != ""):
		return fmt.Sprintf("%s: a change of its pod template is held until its own release begins: wait for that "+
			"release and roll it back, or set the template back first", s.Workload)
	case seen.Recalled != nil && !kept:
		return NotKeptReason(s.Workload, seen)
	case seen.Recalled == nil && seen.Template != seen.Declared && seen.Next != seen.Declared:
		return fmt.Sprintf("%s: its pod template was changed again before the release began", s.Workload)
	}
	return ""
}

// mustKeepTemplate reports whether a write that sets the stable template has to keep the live one in an annotation,
// since the workload declares it.
func (o Observed) mustKeepTemplate() bool {
	return o.Saved.Declared != "" && o.Template != o.Saved.StableTemplate
}
