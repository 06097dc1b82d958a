package pods

import (
	"cmp"
	"fmt"
	"slices"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

type finish struct {
	tech    Technique
	req     rollout.FinishRequest
	seen    Observed
	ours    string
	aim     Revision
	numbers rollout.MoveResult
}

// Finish decides on the next step of one move of finalising. What was borrowed is read from the workload.
func Finish(tech Technique, req rollout.FinishRequest, seen Observed) NextAction {
	switch free := seen.Claim == "" && req.Claim != ""; {
	case req.Action == rollout.FinishAutoscalers:
		return orphans(req, seen)
	case free && seen.Saved == nil && req.Action != rollout.FinishResume: // a person may have repaired it meanwhile
		return nothing(seen, "nothing of a rollout is on it")
	case seen.Claim == "" && seen.Saved != nil && req.Action == rollout.FinishFreeze:
		return nothing(seen, "the split holds")
	}
	if d, stop := guard(req.Subject, seen); stop {
		return d
	}
	if tech.ByPods() && !seen.PodsSeen {
		return look("see which revision its pods are of")
	}
	f := &finish{tech: tech, req: req, seen: seen, ours: cmp.Or(req.Template, seen.Expected, seen.Declared)}
	f.plan()
	d := f.next()
	return d.with(f.numbers)
}

func (f *finish) next() NextAction {
	switch f.req.Action {
	case rollout.FinishFreeze:
		f.numbers.Message = "the split holds: the claim is given back, everything else stays"
		// Where it stops in mid-step it is brought to rest as well: nobody looks after it from now on.
		rest := f.tech.rest(f.asItStands(), f.seen)
		return f.last(f.numbers.Message, &workloadops.Write{Step: "freeze", Settings: f.seen.changed(rest...)})
	case rollout.FinishResume:
		return f.resume()
	case rollout.FinishRelease:
		return f.release()
	case rollout.FinishResumeAndRelease:
		if d := f.resume(); d.Action != workloadops.ActDone {
			return d
		}
		return f.release()
	}
	return failf(failure.Refused, "%s: the move %q of finalising is not known", f.req.Workload, f.req.Action)
}

// asItStands is a Move that is halted with the pods that are there.
func (f *finish) asItStands() task {
	t := task{Request: rollout.MoveRequest{Halt: true}, Size: f.seen.Replicas, Target: f.seen.Replicas,
		Aim: freshOf(f.tech, f.seen, f.ours), Placed: f.ours != "" && f.seen.Template == f.ours}
	t.Total, t.Ready = f.seen.Count(t.Aim)
	return t
}

// orphans gives the autoscalers of a deleted workload their limits back, but for those that the release of a namesake lists as pinned.
func orphans(req rollout.FinishRequest, seen Observed) NextAction {
	for _, a := range seen.Autoscalers {
		theirs := seen.Saved != nil && seen.Claim != req.Claim && !seen.Deleting && slices.Contains(seen.Saved.Autoscalers, a.Name)
		if a.Pinned && !theirs {
			return changeAutoscaler(AutoscalerChange{Name: a.Name}, "give the autoscaler %s of the deleted workload its limits back", a.Name)
		}
	}
	return done("no autoscaler of the deleted workload is pinned to its size")
}

func (f *finish) plan() {
	stable, _ := f.seen.Find(f.seen.Saved.Stable)
	fresh := freshOf(f.tech, f.seen, f.ours)
	f.numbers = numbersOf(f.seen, fresh, stable)
	f.numbers.Template = f.req.Template
	f.aim = stable
	if f.req.To == rollout.SideNew {
		f.numbers.Target = f.seen.Replicas
		// The extra workload's style makes the new revision of the workload itself only now, with a hash of its own.
		f.aim, _ = f.seen.Made(f.ours)
		f.numbers.Updated, f.numbers.UpdatedReady = f.seen.Count(f.aim)
		f.numbers.Canary, f.numbers.CanaryHash = f.aim.Name, f.aim.Hash
		if f.numbers.Template == "" && f.seen.Template == f.ours {
			f.numbers.Template = f.ours
		}
	}
}

// resume gives the borrowed fields back, and waits until the workload's own controller has brought every pod to one version.
func (f *finish) resume() NextAction {
	seen, toStable := f.seen, f.req.To == rollout.SideStable
	if d, grows := f.growExtra(); grows {
		return d
	}
	first, _ := f.tech.home(seen)
	w := &workloadops.Write{Step: "home", Held: f.req.Claim, Settings: seen.changed(first...)}
	if seen.Rest != nil { // it rests no more: what changes now is our own doing
		w.Annotations = map[string]string{rollout.AnnotationRest: rollout.Rest{}.String()}
	}
	template, edited := f.template()
	if edited {
		return drifted(f.req.Subject, seen)
	}
	if w.Template = template; template != nil && toStable {
		if _, ok := seen.Find(seen.Saved.Stable); !ok {
			return failf(failure.Refused,
				"%s: its stable revision %s is gone, so its template cannot be given back: set the stable template by hand, then retry",
				f.req.Workload, seen.Saved.Stable)
		}
		if d, waits := f.calm(); waits {
			return d
		}
	}
	f.noteTemplate(w)
	if !empty(w) {
		return set("give its settings back and bring every pod to the "+string(f.req.To)+" version", w)
	}
	// its pods would get the stable Service's requests once that is given its selector back
	if d, there := f.removeExtra(); toStable && there {
		return d
	}
	progress, whole := f.whole()
	f.numbers.Message = progress
	if whole {
		if d, numbers := number(f.req.Batch, f.aim.Name, f.aim, seen); numbers {
			return d
		}
		return done(progress)
	}
	if stuck := f.tech.unstick(f.aim, seen); seen.PodsSeen && !seen.Lagging() && len(stuck) > 0 {
		return removeStuck(stuck)
	}
	return judge(f.req.Subject, seen, f.aim.Hash, progress, 0)
}

// noteTemplate notes with a template that is set where it goes to, and keeps what a workload declares beside it.
func (f *finish) noteTemplate(w *workloadops.Write) {
	seen, toStable := f.seen, f.req.To == rollout.SideStable
	if w.Template == nil {
		return
	}
	if toStable && seen.keeps() && seen.Template != f.ours {
		w.KeepTemplate = rollout.AnnotationNext // the next release is of it
	}
	if !toStable && seen.Next == f.ours {
		w.Remove = append(w.Remove, rollout.AnnotationNext)
	}
	if seen.Saved.Homeward != f.homeward() {
		saved := *seen.Saved
		saved.Homeward = f.homeward()
		if w.Annotations == nil {
			w.Annotations = map[string]string{}
		}
		w.Annotations[rollout.AnnotationSaved] = saved.String()
	}
}

// calm has a controller that goes by ordinals finish what it has begun, before its pods go home.
func (f *finish) calm() (NextAction, bool) {
	d, waits := f.tech.calm(f.aim, f.seen)
	switch d.Action {
	case workloadops.ActWait:
		f.numbers.Message = d.Reason
		return judge(f.req.Subject, f.seen, f.aim.Hash, d.Reason, 0), true
	case workloadops.ActWrite:
		d.Write.Held = f.req.Claim
	}
	return d, waits
}

// template is the template to set, nil when the live one is right; drifted says that somebody else has edited it.
func (f *finish) template() (put *workloadops.Template, edited bool) {
	live, saved := f.seen.Template, f.seen.Saved
	if f.req.To == rollout.SideStable {
		switch {
		case live == saved.StableTemplate || f.tech.untouched() && live != f.ours && saved.Declared == "":
			return nil, false
		case f.told() && saved.Declared == "": // what a workload declares meanwhile is the next release's
			return nil, true
		}
		return &workloadops.Template{Revision: saved.Stable}, false
	}
	if live == f.ours && f.ours != "" {
		return nil, false
	}
	due := live == saved.StableTemplate && (f.tech.untouched() || f.req.Template == "" || saved.Retracting || f.seen.restsStable())
	if saved.Declared != "" { // set back by hand it means something else
		due = live == saved.StableTemplate && f.seen.Next == f.ours
	}
	if !due && !f.req.PutBack || f.told() {
		return nil, true
	}
	return &workloadops.Template{Revision: f.aim.Name}, false
}

// told says that the template was set before, on this very way home: somebody else has set it otherwise since. A person who has it put back
// (verb retry) has it set as often as it takes until the time is up.
func (f *finish) told() bool {
	return f.seen.Saved.Homeward == f.homeward() && (!f.req.PutBack || f.seen.Elapsed >= deadlineOf(f.req.Subject))
}

func (f *finish) homeward() string { return f.req.Claim + " " + string(f.req.To) }

// whole says whether every pod is of the one version and available, and no other is left.
func (f *finish) whole() (progress string, whole bool) {
	seen, saved := f.seen, f.seen.Saved
	if f.tech.untouched() && saved.Declared == "" && f.req.To == rollout.SideStable && seen.Template != seen.Saved.StableTemplate && seen.Template != f.ours {
		return "somebody else has changed the workload's template, which this rollout had not touched", true
	}
	total, ready := seen.Count(f.aim)
	progress = fmt.Sprintf("going home to %s: %d of %d pods of the %s version are ready",
		f.req.To, min(ready, seen.Replicas), seen.Replicas, f.req.To)
	left := max(seen.Total-total, 0)
	if left > 0 {
		progress += fmt.Sprintf(", %d others are left", left)
	}
	if seen.Lagging() || f.aim.Hash == "" && seen.Replicas > 0 {
		return progress, false
	}
	least := min(total, ready, seen.Available)
	return progress, least >= seen.Replicas && left == 0 && seen.Total <= seen.Replicas
}

// growExtra has the extra workload, which serves until the workload itself is of the new version, follow a size that somebody has raised.
func (f *finish) growExtra() (d NextAction, grows bool) {
	e := f.seen.Extra
	if e == nil || e.Deleting || e.Of != strategy.CanaryOf(f.req.Workload.WorkloadRef.Name) {
		return NextAction{}, false
	}
	if f.req.Extra == nil || f.req.To != rollout.SideNew {
		return NextAction{}, false
	}
	target := strategy.Target(*f.req.Extra, f.seen.Replicas)
	if e.Replicas >= target {
		return NextAction{}, false
	}
	return changeExtra(ExtraChange{Replicas: &target}, "grow %s from %d to %d new pods with the workload", e.Name, e.Replicas, target), true
}

// removeExtra deletes the extra workload and waits until it is gone with its pods; there is false when none is there.
func (f *finish) removeExtra() (d NextAction, there bool) {
	e := f.seen.Extra
	if e == nil || f.seen.Saved.CanaryWorkload != e.Name || e.Of != strategy.CanaryOf(f.req.Workload.WorkloadRef.Name) {
		return NextAction{}, false
	}
	if e.Deleting {
		return judge(f.req.Subject, f.seen, "", "the extra workload "+e.Name+" is being deleted", 0), true
	}
	return changeExtra(ExtraChange{Delete: e.UID}, "delete the extra workload %s", e.Name), true
}

// release takes away everything of ours, the claim last.
func (f *finish) release() NextAction {
	seen := f.seen
	if d, there := f.removeExtra(); there {
		return d
	}
	for _, a := range seen.Autoscalers {
		if slices.Contains(seen.Saved.Autoscalers, a.Name) && a.Pinned {
			return changeAutoscaler(AutoscalerChange{Name: a.Name}, "give the autoscaler %s its limits back", a.Name)
		}
	}
	settings, last := f.tech.home(seen)
	for _, s := range last { // it comes in the place of one of the same path
		settings = append([]workloadops.Setting{s}, slices.DeleteFunc(settings, func(o workloadops.Setting) bool { return o.Path == s.Path })...)
	}
	f.numbers.Message = fmt.Sprintf("%d of %d pods are ready, nothing of the rollout is left", min(seen.Ready, seen.Replicas), seen.Replicas)
	return f.last("take away what is the rollout's, the claim last", &workloadops.Write{Step: "release", Settings: seen.changed(settings...),
		Remove: f.marks(), Unlabel: []string{rollout.LabelStableRevision}})
}

// marks are the annotations of the rollout. A template that is kept for the next release stays.
func (f *finish) marks() []string {
	marks := []string{rollout.AnnotationSaved, rollout.AnnotationRecover, rollout.AnnotationRest, rollout.AnnotationRepair, workloadops.AnnotationClaimedBy,
		rollout.AnnotationInProgressing, rollout.AnnotationExtraStatus, rollout.AnnotationOriginalStrategy}
	if f.seen.Next != "" && (f.seen.Next == f.seen.Template || f.seen.Next == f.ours) {
		marks = append(marks, rollout.AnnotationNext)
	}
	return marks
}

// last ends the move with a write that gives the claim back.
func (f *finish) last(reason string, w *workloadops.Write) NextAction {
	w.Held, w.Release = f.req.Claim, true
	d := set(reason, w)
	d.Ends = true
	return d
}
