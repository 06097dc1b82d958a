package workloadops

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// Restore decides how what an unfinished operation borrowed is given back and its claim released.
// A workload that the request does not hold is left alone.
func Restore(req Request, seen Observed) NextAction {
	if seen.Claim != req.Claim {
		return NextAction{Action: ActDone, Reason: "nothing to give back",
			Result: &Result{Message: "nothing to give back: this release does not hold the workload"}}
	}
	message := "the claim is released; nothing was borrowed"
	w, notes := giveBack(seen, "restore")
	if len(w.Settings) > 0 {
		message = "its own update settings are given back and the claim is released"
	}
	if seen.OriginalProblem != "" {
		message = "the claim is released, but what was saved cannot be read: look at its size and update settings by hand"
	}
	return NextAction{Action: ActWrite, Reason: message, Write: w, Result: &Result{Message: message + notes, Changed: true}}
}

// finish ends the operation well, giving back first what is held.
func finish(req Request, seen Observed, result Result) NextAction {
	if o := seen.Original; o != nil && o.Begun {
		result.Changed = result.Changed || o.Changed
		result.FromRevision, result.FromReplicas, result.FromPackage = o.FromRevision, o.FromReplicas, o.FromPackage
		result.Before = o.Before
	} else {
		result.FromPackage = packageOf(req, seen)
		result.FromRevision = seen.Revision
		result.FromReplicas, result.Before = sizeOf(req, seen), seen.Template
	}
	if result.ToRevision == "" {
		result.ToRevision = seen.Revision
	}
	result.ToReplicas, result.ToPackage, result.After = sizeOf(req, seen), packageOf(req, seen), seen.Template
	if seen.Claim != req.Claim {
		return NextAction{Action: ActDone, Reason: result.Message, Result: &result}
	}
	w, notes := giveBack(seen, "end")
	result.Message += notes
	return NextAction{Action: ActWrite, Reason: result.Message, Write: w, Result: &result}
}

// abort ends the operation badly, giving back first what is held: the size and the template stay as they are.
func abort(req Request, seen Observed, e *failure.Error) NextAction {
	if seen.Claim != req.Claim {
		return Fail(e)
	}
	w, notes := giveBack(seen, "fail")
	e.Message += notes
	if o := seen.Original; o != nil && o.Begun {
		e.Effect = &failure.Effect{Changed: o.Changed, FromRevision: o.FromRevision, ToRevision: seen.Revision,
			FromReplicas: o.FromReplicas, ToReplicas: sizeOf(req, seen), FromPackage: o.FromPackage, ToPackage: packageOf(req, seen),
			Before: o.Before, After: seen.Template}
	}
	return NextAction{Action: ActWrite, Reason: e.Message, Write: w, Failure: e}
}

// takeOver gives back what somebody else borrowed and puts this operation's claim in place of theirs, in one write.
func takeOver(req Request, seen Observed, reason string) NextAction {
	w, _ := giveBack(seen, "take-over")
	w.Release, w.Claim, w.Fresh = false, req.Claim, true
	w.Remove = slices.DeleteFunc(w.Remove, func(name string) bool { return name == AnnotationOriginal })
	w.Annotations[AnnotationOriginal] = Original{Operation: req.Operation, BegunAt: seen.Now.UTC()}.String()
	return write(reason, w)
}

// giveBack is the write that gives everything back and releases the claim. A setting that is no longer what was lent was changed by
// somebody else meanwhile: theirs stays, and the notes say so.
func giveBack(seen Observed, step string) (w *Write, notes string) {
	w = &Write{Step: step, Held: seen.Claim, Release: true, Annotations: map[string]string{}, Remove: []string{AnnotationOriginal}}
	o := seen.Original
	if o == nil {
		return w, ""
	}
	var foreign []string
	for _, b := range o.Borrowed {
		switch now := seen.Settings[b.Path]; {
		case SameJSON(now, b.Lent):
			w.Settings = append(w.Settings, Setting{Path: b.Path, Value: b.Own, Was: now})
		case !SameJSON(now, b.Own):
			foreign = append(foreign, b.Path)
		}
	}
	if len(foreign) > 0 {
		notes = fmt.Sprintf("; somebody else changed %s meanwhile, which is left as it is", strings.Join(foreign, " and "))
	}
	markSize(seen, w)
	return w, notes
}

// markSize leaves on the workload what a later START or STOP has to know of its size (AnnotationReplicas, AnnotationLeftAt).
func markSize(seen Observed, w *Write) {
	o := seen.Original
	if o.Size == nil {
		return
	}
	foreign := o.Asked != nil && *o.Asked != seen.Replicas
	switch {
	case seen.Replicas == 0:
		w.Annotations[AnnotationReplicas] = strconv.Itoa(int(*o.Size))
		w.Remove = append(w.Remove, AnnotationLeftAt)
	case foreign, o.grows() && seen.Replicas >= *o.Size:
		w.Remove = append(w.Remove, AnnotationReplicas, AnnotationLeftAt)
	default:
		w.Annotations[AnnotationReplicas] = strconv.Itoa(int(*o.Size))
		w.Annotations[AnnotationLeftAt] = strconv.Itoa(int(seen.Replicas))
	}
}

// grows says whether the operation brings the workload to a size, rather than to none.
func (o Original) grows() bool {
	return o.Operation == plan.Start || o.Operation == plan.Restore && o.Target != nil && *o.Target > 0
}

// packageOf is the code package that the workload runs, where that is the operation's business.
func packageOf(req Request, seen Observed) string {
	if !deploys(req.Operation) {
		return ""
	}
	return seen.Package
}

// sizeOf is the workload's size, nil for a kind that has none.
func sizeOf(req Request, seen Observed) *int32 {
	if req.Workload.WorkloadRef.Kind == KindDaemonSet {
		return nil
	}
	return new(seen.Replicas)
}
