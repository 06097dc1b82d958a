package pods

import (
	"cmp"
	"fmt"
	"slices"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

type finish struct {
	tech        Technique
	req         rollout.FinishRequest
	seen        Observed
	newTemplate string
	aim         Revision
	numbers     rollout.MoveResult
}

// Finish decides on the next action of one stage of finalising (FinishRequest.Action). What was borrowed is read from
// the workload.
func Finish(tech Technique, req rollout.FinishRequest, seen Observed) NextAction {
	switch free := seen.Claim == "" && req.Claim != ""; {
	case req.Action == rollout.FinishAutoscalers:
		return restoreOrphanedAutoscalers(req, seen)
	case free && seen.Saved == nil && req.Action != rollout.FinishResume: // a user may have repaired it meanwhile
		return alreadyReleased(req, seen)
	case seen.Claim == "" && seen.Saved != nil && req.Action == rollout.FinishFreeze:
		return nothingToDo(seen, "the split holds")
	}
	if d, stop := checkClaim(req.Subject, seen); stop {
		return d
	}
	if tech.CountsPods() && !seen.PodsSeen {
		return readPods("read which revision its pods belong to")
	}
	f := &finish{tech: tech, req: req, seen: seen, newTemplate: cmp.Or(req.Template, seen.Expected, seen.Declared)}
	f.plan()
	d := f.next()
	return d.withNumbers(f.numbers)
}

// alreadyReleased ends a Finish of a workload that carries nothing of a rollout. The template shows whether it was
// released with the other version: the result of the Finish that did so was lost, or another client did it.
func alreadyReleased(req rollout.FinishRequest, seen Observed) NextAction {
	fresh := cmp.Or(req.Template, seen.Expected, seen.Declared)
	if p := req.Predicted; fresh == "" && p != nil && p.UID == seen.UID {
		fresh = p.Template
	}
	isStable := req.StableTemplate != "" && seen.Template == req.StableTemplate
	isNew := fresh != "" && seen.Template == fresh
	d := nothingToDo(seen, "it carries nothing of a rollout")
	switch {
	case isNew && !isStable && req.To == rollout.SideStable:
		d.Numbers.Released = rollout.SideNew
	case isStable && !isNew && req.To == rollout.SideNew:
		d.Numbers.Released = rollout.SideStable
	}
	if isNew {
		r, _ := seen.RevisionByTemplate(seen.Template)
		d.Numbers.Updated, d.Numbers.UpdatedReady = seen.Count(r)
	}
	return d
}

func (f *finish) next() NextAction {
	switch f.req.Action {
	case rollout.FinishFreeze:
		f.numbers.Message = "the split holds: the claim is released, everything else stays"
		// If it stops in the middle of a step, it is paused as well: nothing watches it from now on.
		rest := f.tech.pauseSettings(f.haltedTask(), f.seen)
		return f.finalWrite(f.numbers.Message, &workload.Write{Step: "freeze",
			Settings: f.seen.settingsToWrite(rest...)})
	case rollout.FinishResume:
		return f.resume()
	case rollout.FinishRelease:
		return f.release()
	case rollout.FinishResumeAndRelease:
		if d := f.resume(); d.Action != workload.ActDone {
			return d
		}
		return f.release()
	}
	return failf(failure.Refused, "%s: unknown stage %q of finalising", f.req.Workload, f.req.Action)
}

// haltedTask returns the task of a Move that is halted with the current pods.
func (f *finish) haltedTask() task {
	t := task{Request: rollout.MoveRequest{Halt: true}, Size: f.seen.Replicas, Target: f.seen.Replicas,
		Aim: newRevisionOf(f.tech, f.seen, f.newTemplate), Placed: f.newTemplate != "" &&
			f.seen.Template == f.newTemplate}
	t.Total, t.Ready = f.seen.Count(t.Aim)
	return t
}

// restoreOrphanedAutoscalers restores the limits of a deleted workload's autoscalers, except those that the release of
// another workload of the same name lists as pinned.
func restoreOrphanedAutoscalers(req rollout.FinishRequest, seen Observed) NextAction {
	for _, a := range seen.Autoscalers {
		theirs := seen.Saved != nil && seen.Claim != req.Claim && !seen.Deleting &&
			slices.Contains(seen.Saved.Autoscalers, a.Name)
		if a.Pinned && !theirs {
			return changeAutoscaler(AutoscalerChange{Name: a.Name},
				"restore the limits of autoscaler %s of the deleted workload", a.Name)
		}
	}
	return done("no autoscaler of the deleted workload is pinned to its size")
}

func (f *finish) plan() {
	stable, _ := f.seen.RevisionByName(f.seen.Saved.Stable)
	fresh := newRevisionOf(f.tech, f.seen, f.newTemplate)
	f.numbers = numbersOf(f.seen, fresh, stable)
	f.numbers.Template = f.req.Template
	f.aim = stable
	if f.req.To == rollout.SideNew {
		f.numbers.Target = f.seen.Replicas
		// With an extra workload, the workload's own new revision is made only now, with a hash of its own.
		f.aim, _ = f.seen.RevisionByTemplate(f.newTemplate)
		f.numbers.Updated, f.numbers.UpdatedReady = f.seen.Count(f.aim)
		f.numbers.Canary, f.numbers.CanaryHash = f.aim.Name, f.aim.Hash
		if f.numbers.Template == "" && f.seen.Template == f.newTemplate {
			f.numbers.Template = f.newTemplate
		}
	}
}

// resume restores the borrowed fields and waits until the workload's own controller has brought every pod to one
// version.
func (f *finish) resume() NextAction {
	seen, toStable := f.seen, f.req.To == rollout.SideStable
	if d, grows := f.growExtra(); grows {
		return d
	}
	first, _ := f.tech.finalSettings(seen)
	w := &workload.Write{Step: "home", ExpectedClaim: f.req.Claim, Settings: seen.settingsToWrite(first...)}
	if seen.Rest != nil { // the pause has ended: later changes are the rollout's own
		w.Annotations = map[string]string{rollout.AnnotationSettled: rollout.SettledState{}.String()}
	}
	template, edited := f.template()
	if edited {
		return failTemplateDrift(f.req.Subject, seen)
	}
	if w.Template = template; template != nil && toStable {
		if _, ok := seen.RevisionByName(seen.Saved.Stable); !ok {
			return failf(failure.Refused, "%s: its stable revision %s no longer exists, so its template cannot be "+
				"restored: set the stable template manually, then retry", f.req.Workload, seen.Saved.Stable)
		}
		if d, waits := f.haltUpdate(); waits {
			return d
		}
	}
	f.noteTemplate(w)
	if !empty(w) {
		return set("restore its settings and bring every pod to the "+string(f.req.To)+" version", w)
	}
	// its pods would get the stable Service's requests once that Service's selector is restored
	if d, there := f.removeExtra(); toStable && there {
		return d
	}
	progress, complete := f.allPodsReady()
	f.numbers.Message = progress
	if complete {
		if d, numbers := numberPods(f.req.Batch, f.aim.Hash, f.aim, seen, strategy.StylePartition); numbers {
			return d
		}
		return done(progress)
	}
	if stuck := f.tech.blockingPods(f.aim, seen); seen.PodsSeen && !seen.Lagging() && len(stuck) > 0 {
		return removeStuck(stuck)
	}
	return waitOrFail(f.req.Subject, seen, f.aim.Hash, progress, 0)
}

// noteTemplate records, together with a template that is set, which side it belongs to, and keeps what a workload
// declares in an annotation.
func (f *finish) noteTemplate(w *workload.Write) {
	seen, toStable := f.seen, f.req.To == rollout.SideStable
	if w.Template == nil {
		return
	}
	if toStable && seen.mustKeepTemplate() && seen.Template != f.newTemplate {
		w.KeepTemplate = rollout.AnnotationNext // the next release deploys it
	}
	if !toStable && seen.Next == f.newTemplate {
		w.Remove = append(w.Remove, rollout.AnnotationNext)
	}
	if seen.Saved.FinalTemplateBy != f.finishMark() {
		saved := *seen.Saved
		saved.FinalTemplateBy = f.finishMark()
		if w.Annotations == nil {
			w.Annotations = map[string]string{}
		}
		w.Annotations[workload.AnnotationRollout] = saved.String()
	}
}

// haltUpdate lets the technique stop an update that is under way before the stable template is set.
func (f *finish) haltUpdate() (NextAction, bool) {
	d, waits := f.tech.haltUpdate(f.aim, f.seen)
	switch d.Action {
	case workload.ActWait:
		f.numbers.Message = d.Reason
		return waitOrFail(f.req.Subject, f.seen, f.aim.Hash, d.Reason, 0), true
	case workload.ActWrite:
		d.Write.ExpectedClaim = f.req.Claim
	}
	return d, waits
}

// template returns the template to set, nil if the live one is right; edited is true if another client changed it.
func (f *finish) template() (put *workload.Template, edited bool) {
	live, saved := f.seen.Template, f.seen.Saved
	if f.req.To == rollout.SideStable {
		switch {
		case live == saved.StableTemplate || f.tech.usesExtraWorkload() && live != f.newTemplate &&
			saved.Declared == "":
			return nil, false
		// a template declared meanwhile belongs to the next release
		case f.templateAlreadySet() && saved.Declared == "":
			return nil, true
		}
		return &workload.Template{Revision: saved.Stable}, false
	}
	if live == f.newTemplate && f.newTemplate != "" {
		return nil, false
	}
	due := live == saved.StableTemplate && (f.tech.usesExtraWorkload() || f.req.Template == "" || saved.RollingBack ||
		f.seen.leftOnStable())
	if saved.Declared != "" { // set back manually, it means something else
		due = live == saved.StableTemplate && f.seen.Next == f.newTemplate
	}
	if !due && !f.req.OverwriteDrift || f.templateAlreadySet() {
		return nil, true
	}
	return &workload.Template{Revision: f.aim.Name}, false
}

// templateAlreadySet reports whether this Finish has already set the template: then another client has changed it
// since. If a user asks to restore it (verb retry), it is set as often as needed until the deadline.
func (f *finish) templateAlreadySet() bool {
	return f.seen.Saved.FinalTemplateBy == f.finishMark() &&
		(!f.req.OverwriteDrift || f.seen.Elapsed >= deadlineOf(f.req.Subject))
}

func (f *finish) finishMark() string { return f.req.Claim + " " + string(f.req.To) }

// allPodsReady reports whether every pod is of the target version and available, and no other is left, with the
// progress as text.
func (f *finish) allPodsReady() (progress string, complete bool) {
	seen, saved := f.seen, f.seen.Saved
	if f.tech.usesExtraWorkload() && saved.Declared == "" && f.req.To == rollout.SideStable &&
		seen.Template != seen.Saved.StableTemplate && seen.Template != f.newTemplate {
		return "another client changed the workload's template, which this rollout had not touched", true
	}
	total, ready := seen.Count(f.aim)
	progress = fmt.Sprintf("finalising to %s: %d of %d pods of the %s version are ready",
		f.req.To, min(ready, seen.Replicas), seen.Replicas, f.req.To)
	left := max(seen.Total-total, 0)
	if left > 0 {
		progress += fmt.Sprintf(", %d others are left", left)
	}
	switch note := seen.UnavailableNote(); {
	case seen.Lagging():
		return progress + ", its controller has not seen the last change yet", false
	case f.aim.Hash == "" && seen.Replicas > 0:
		return progress + ", its controller has not made the revision yet", false
	case note != "" && ready >= seen.Replicas:
		progress += ", " + note
	}
	least := min(total, ready, seen.Available)
	return progress, least >= seen.Replicas && left == 0 && seen.Total <= seen.Replicas
}

// growExtra scales up the extra workload, which serves until the workload itself is of the new version, if the
// workload's size was raised.
func (f *finish) growExtra() (d NextAction, grows bool) {
	e := f.seen.Extra
	if e == nil || e.Deleting || e.CanaryOf != strategy.CanaryOf(f.req.Workload.WorkloadRef.Name) {
		return NextAction{}, false
	}
	if f.req.ExtraReplicas == nil || f.req.To != rollout.SideNew {
		return NextAction{}, false
	}
	target := strategy.Target(strategy.StyleCanary, *f.req.ExtraReplicas, f.seen.Replicas)
	if e.Replicas >= target {
		return NextAction{}, false
	}
	return changeExtra(ExtraChange{Replicas: &target}, "grow %s from %d to %d new pods with the workload", e.Name,
		e.Replicas, target), true
}

// removeExtra deletes the extra workload and waits until it and its pods are deleted; there is false if it does not
// exist.
func (f *finish) removeExtra() (d NextAction, there bool) {
	e := f.seen.Extra
	if e == nil || f.seen.Saved.CanaryWorkload != e.Name ||
		e.CanaryOf != strategy.CanaryOf(f.req.Workload.WorkloadRef.Name) {
		return NextAction{}, false
	}
	if e.Deleting {
		return waitOrFail(f.req.Subject, f.seen, "", "the extra workload "+e.Name+" is being deleted", 0), true
	}
	return changeExtra(ExtraChange{Delete: e.UID}, "delete the extra workload %s", e.Name), true
}

// release removes everything of the rollout, the claim last.
func (f *finish) release() NextAction {
	seen := f.seen
	if d, there := f.removeExtra(); there {
		return d
	}
	for _, a := range seen.Autoscalers {
		if slices.Contains(seen.Saved.Autoscalers, a.Name) && a.Pinned {
			return changeAutoscaler(AutoscalerChange{Name: a.Name}, "restore the limits of autoscaler %s", a.Name)
		}
	}
	settings, last := f.tech.finalSettings(seen)
	for _, s := range last { // it replaces the setting of the same path
		settings = append([]workload.Setting{s}, slices.DeleteFunc(settings, func(o workload.Setting) bool {
			return o.Path == s.Path
		})...)
	}
	f.numbers.Message = fmt.Sprintf("%d of %d pods are ready, nothing of the rollout is left",
		min(seen.Ready, seen.Replicas), seen.Replicas)
	return f.finalWrite("remove everything of the rollout, the claim last",
		&workload.Write{Step: "release", Settings: seen.settingsToWrite(settings...),
			Remove: f.annotationsToRemove(), Unlabel: []string{rollout.LabelStableRevision}})
}

// annotationsToRemove returns the annotations of the rollout. A template that is kept for the next release stays.
func (f *finish) annotationsToRemove() []string {
	marks := []string{workload.AnnotationRollout, rollout.AnnotationRecover, rollout.AnnotationSettled,
		rollout.AnnotationRepair, workload.AnnotationClaimedBy,
		rollout.AnnotationInProgressing, rollout.AnnotationExtraStatus, rollout.AnnotationOriginalStrategy}
	if f.seen.Next != "" && (f.seen.Next == f.seen.Template || f.seen.Next == f.newTemplate) {
		marks = append(marks, rollout.AnnotationNext)
	}
	return marks
}

// finalWrite ends the stage with a write that releases the claim.
func (f *finish) finalWrite(reason string, w *workload.Write) NextAction {
	w.ExpectedClaim, w.Release = f.req.Claim, true
	d := set(reason, w)
	d.Ends = true
	return d
}
