package pods

import (
	"fmt"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// finish is one decision on a move of finalising.
type finish struct {
	tech    Technique
	req     rollout.FinishRequest
	seen    Observed
	ours    string
	aim     Revision
	numbers rollout.MoveResult
}

// Finish decides on the next step of one move of finalising. What was borrowed is read from the workload.
func Finish(tech Technique, req rollout.FinishRequest, seen Observed) Decision {
	if req.Action == rollout.FinishAutoscalers {
		return orphans(req, seen)
	}
	if releases(req.Action) && seen.Claim != req.Claim && seen.Saved == nil && seen.Claim == "" {
		return Decision{Action: ActDone, Reason: "nothing of a rollout is on it", Numbers: rollout.MoveResult{Replicas: seen.Replicas, Generation: seen.Generation, Message: "nothing of a rollout is on it"}}
	}
	if req.Action == rollout.FinishFreeze && seen.Claim == "" && seen.Saved != nil {
		return Decision{Action: ActDone, Reason: "the split holds", Numbers: rollout.MoveResult{Replicas: seen.Replicas, Generation: seen.Generation, Message: "the split holds"}}
	}
	if d, stop := guard(req.Subject, seen); stop {
		return d
	}
	if tech.ByPods() && !seen.PodsSeen {
		return look("see which revision its pods are of")
	}
	f := &finish{tech: tech, req: req, seen: seen, ours: orElse(req.Template, seen.Expected)}
	f.plan()
	switch req.Action {
	case rollout.FinishFreeze:
		f.numbers.Message = "the split holds: the claim is given back, everything else stays"
		// Where it stops in mid-step, nothing but the gate may stay either: nobody looks after it from now on.
		rest := tech.Rest(Task{Placed: f.ours != "" && seen.Template == f.ours}, seen)
		return f.last(Set(f.numbers.Message, &Write{Step: "freeze", Held: req.Claim, Release: true, Settings: changed(rest, seen)}))
	case rollout.FinishResume:
		return f.resume()
	case rollout.FinishRelease:
		return f.release()
	case rollout.FinishResumeAndRelease:
		if d := f.resume(); d.Action != ActDone {
			return d
		}
		return f.release()
	}
	return failf(failure.Refused, "%s: the move %q of finalising is not known", req.Workload, req.Action)
}

// orphans gives the autoscalers of a workload that was deleted their limits back. Another workload of its name may be there by now: what its own release lists as
// pinned is given back by that one.
func orphans(req rollout.FinishRequest, seen Observed) Decision {
	for _, a := range seen.Autoscalers {
		theirs := seen.Saved != nil && seen.Claim != req.Claim && !seen.Deleting && contains(seen.Saved.Autoscalers, a.Name)
		if a.Pinned && !theirs {
			return Decision{Action: ActAutoscaler, Autoscaler: &AutoscalerChange{Name: a.Name}, Reason: "give the autoscaler " + a.Name + " of the deleted workload its limits back"}
		}
	}
	return Done("no autoscaler of the deleted workload is pinned to its size")
}

func releases(a rollout.FinishAction) bool {
	return a == rollout.FinishRelease || a == rollout.FinishResumeAndRelease
}

func (f *finish) plan() {
	stable, _ := f.seen.Find(f.seen.Saved.Stable)
	fresh := freshOf(f.tech, f.seen, f.ours)
	f.numbers = numbersOf(f.seen, fresh, stable)
	f.numbers.Template = f.req.Template
	f.aim = stable
	if f.req.To == rollout.SideNew {
		f.numbers.Target = f.seen.Replicas
		// The extra workload's style makes the new revision of the workload itself only now.
		f.aim, _ = f.seen.Made(f.ours)
		f.numbers.Updated, f.numbers.UpdatedReady = f.seen.Count(f.aim)
		if f.numbers.Template == "" && f.seen.Template == f.ours {
			f.numbers.Template = f.ours
		}
	}
}

// resume gives the borrowed fields back, and waits until the workload's own controller has brought every pod to one version.
func (f *finish) resume() Decision {
	seen := f.seen
	first, _ := f.tech.Home(seen)
	w := &Write{Step: "home", Held: f.req.Claim, Settings: changed(first, seen)}
	if seen.Rest != nil { // it rests no more: what changes now is our own doing
		w.Annotations = map[string]string{rollout.AnnotationRest: rollout.Rest{}.String()}
	}
	template, drifted := f.template()
	if drifted {
		return drift(f.req.Subject, seen, f.numbers)
	}
	if w.Template = template; template != nil && f.req.To == rollout.SideStable {
		if _, ok := seen.Find(seen.Saved.Stable); !ok {
			return failf(failure.Refused, "%s: its stable revision %s is gone, so its template cannot be given back: set the stable template by hand, then retry",
				f.req.Workload, seen.Saved.Stable)
		}
	}
	if template != nil && f.req.To == rollout.SideStable {
		if d, waits := f.calm(); waits {
			return d
		}
	}
	if len(w.Settings) > 0 || template != nil {
		d := Set("give its settings back and bring every pod to the "+string(f.req.To)+" version", w)
		d.Numbers = f.numbers
		return d
	}
	if f.req.To == rollout.SideStable { // its pods would get the stable Service's requests as soon as that is given its selector back
		if d, there := f.removeExtra(); there {
			return d
		}
	}
	progress, whole := f.whole()
	f.numbers.Message = progress
	if whole {
		return Decision{Action: ActDone, Reason: progress, Numbers: f.numbers}
	}
	if seen.PodsSeen && !seen.Lagging() {
		if d := f.tech.Unstick(f.aim, seen); d.Action == ActDelete {
			d.Numbers = f.numbers
			return d
		}
	}
	return judge(f.req.Subject, seen, f.aim.Hash, progress, 0, f.numbers)
}

// calm has a controller that goes by ordinals finish what it has begun, before its pods go home.
func (f *finish) calm() (Decision, bool) {
	tech, ok := f.tech.(interface {
		calm(stable Revision, seen Observed) (Decision, bool)
	})
	if !ok {
		return Decision{}, false
	}
	d, waits := tech.calm(f.aim, f.seen)
	d.Numbers = f.numbers
	switch d.Action {
	case ActWait:
		f.numbers.Message = d.Reason
		return judge(f.req.Subject, f.seen, f.aim.Hash, d.Reason, 0, f.numbers), true
	case ActWrite:
		d.Write.Held = f.req.Claim
	}
	return d, waits
}

// template is the template to set, nil when the live one is right; drifted says that somebody else has edited it.
func (f *finish) template() (set *Template, drifted bool) {
	live, saved := f.seen.Template, f.seen.Saved
	if f.req.To == rollout.SideStable {
		if live == saved.StableTemplate || f.tech.untouched() && live != f.ours {
			return nil, false
		}
		return &Template{Revision: saved.Stable}, false
	}
	if live == f.ours && f.ours != "" {
		return nil, false
	}
	due := live == saved.StableTemplate && (f.tech.untouched() || f.req.Template == "" || saved.Retracting)
	if !due && !f.req.PutBack {
		return nil, true
	}
	return &Template{Revision: f.aim.Name}, false
}

// whole says whether every pod is of the one version and available, and no other is left.
func (f *finish) whole() (progress string, whole bool) {
	seen := f.seen
	if f.tech.untouched() && f.req.To == rollout.SideStable && seen.Template != seen.Saved.StableTemplate && seen.Template != f.ours {
		return "somebody else has changed the workload's template, which this rollout had not touched", true
	}
	total, ready := seen.Count(f.aim)
	progress = fmt.Sprintf("going home to %s: %d of %d pods of the %s version are ready", f.req.To, min(ready, seen.Replicas), seen.Replicas, f.req.To)
	left := max(seen.Total-total, 0)
	if left > 0 {
		progress += fmt.Sprintf(", %d others are left", left)
	}
	if seen.Lagging() || f.aim.Hash == "" && seen.Replicas > 0 {
		return progress, false
	}
	return progress, total >= seen.Replicas && ready >= seen.Replicas && seen.Available >= seen.Replicas && left == 0 && seen.Total <= seen.Replicas
}

// removeExtra deletes the extra workload and waits until it is gone with its pods; there is false when none is there.
func (f *finish) removeExtra() (d Decision, there bool) {
	e := f.seen.Extra
	if e == nil || f.seen.Saved.CanaryWorkload != e.Name || e.Of != CanaryOf(f.req.Workload.WorkloadRef.Name) {
		return Decision{}, false
	}
	if e.Deleting {
		return judge(f.req.Subject, f.seen, "", "the extra workload "+e.Name+" is being deleted", 0, f.numbers), true
	}
	return Decision{Action: ActExtra, Extra: &ExtraChange{Delete: e.UID}, Reason: "delete the extra workload " + e.Name, Numbers: f.numbers}, true
}

// release takes away everything of ours, the claim last.
func (f *finish) release() Decision {
	seen, saved := f.seen, f.seen.Saved
	if d, there := f.removeExtra(); there {
		return d
	}
	for _, a := range seen.Autoscalers {
		if contains(saved.Autoscalers, a.Name) && a.Pinned {
			return Decision{Action: ActAutoscaler, Autoscaler: &AutoscalerChange{Name: a.Name}, Reason: "give the autoscaler " + a.Name + " its limits back", Numbers: f.numbers}
		}
	}
	first, last := f.tech.Home(seen)
	settings := first
	for _, s := range last {
		settings = override(settings, s)
	}
	f.numbers.Message = fmt.Sprintf("%d of %d pods are ready, nothing of the rollout is left", min(seen.Ready, seen.Replicas), seen.Replicas)
	return f.last(Set("take away what is the rollout's, the claim last", &Write{
		Step: "release", Held: f.req.Claim, Release: true, Settings: changed(settings, seen),
		Remove: []string{rollout.AnnotationSaved, rollout.AnnotationRecover, rollout.AnnotationRest, workloadops.AnnotationClaimedBy},
	}))
}

func (f *finish) last(d Decision) Decision {
	d.Ends, d.Numbers = true, f.numbers
	return d
}

// override puts a setting into the place of one of the same path, or adds it.
func override(list []Setting, s Setting) []Setting {
	out := []Setting{s}
	for _, o := range list {
		if o.Path != s.Path {
			out = append(out, o)
		}
	}
	return out
}
