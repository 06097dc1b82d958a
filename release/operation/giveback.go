package operation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/workload"
)

// Restore decides how to restore what an unfinished operation borrowed and to release its claim. It does not change a
// workload that the request does not hold.
func Restore(req Request, seen Observed) workload.NextAction {
	if seen.Claim != req.Claim {
		return workload.NextAction{Action: workload.ActDone, Reason: "nothing to restore",
			Result: &workload.Result{Message: "nothing to restore: this release does not hold the workload"}}
	}
	message := "the claim is released; nothing was borrowed"
	w, notes := restoreWrite(seen, "restore")
	if len(w.Settings) > 0 {
		message = "its own update settings are restored and the claim is released"
	}
	if seen.OriginalProblem != "" {
		message = "the claim is released, but the saved settings cannot be read: check its size and update settings " +
			"by hand"
	}
	return workload.NextAction{Action: workload.ActWrite, Reason: message, Write: w,
		Result: &workload.Result{Message: message + notes, Changed: true}}
}

// finish ends the operation with success. If it holds the workload, the last write restores what was borrowed and
// releases the claim.
func finish(req Request, seen Observed, result workload.Result) workload.NextAction {
	if o := seen.Original; o != nil && o.Begun {
		result.Changed = result.Changed || o.Changed
	}
	to := result.ToRevision
	result.Change = changeOf(req, seen)
	result.ToRevision = cmp.Or(to, result.ToRevision)
	if seen.Claim != req.Claim {
		return workload.NextAction{Action: workload.ActDone, Reason: result.Message, Result: &result}
	}
	w, notes := restoreWrite(seen, "end")
	result.Message += notes
	return workload.NextAction{Action: workload.ActWrite, Reason: result.Message, Write: w, Result: &result}
}

// changeOf returns what the operation has changed so far.
func changeOf(req Request, seen Observed) revision.Change {
	runs := "" // the operation does not change it
	if setsVersion(req.Operation) {
		runs = seen.Package
	}
	c := revision.Change{FromRevision: seen.Revision, FromReplicas: sizeOf(req, seen), FromPackage: runs,
		Before: seen.Template}
	if o := seen.Original; o != nil && o.Begun {
		c = o.Change
	}
	c.ToRevision, c.ToReplicas = seen.Revision, sizeOf(req, seen)
	c.ToPackage, c.After = runs, seen.Template
	return c
}

// abort ends the operation with a failure. If it holds the workload, the last write restores what was borrowed and
// releases the claim; the size and the template stay unchanged.
func abort(req Request, seen Observed, e *failure.Error) workload.NextAction {
	if seen.Claim != req.Claim {
		return workload.Fail(e)
	}
	w, notes := restoreWrite(seen, "fail")
	e.Message += notes
	if o := seen.Original; o != nil && o.Begun {
		e.Effect = &failure.Effect{Changed: o.Changed, Change: changeOf(req, seen)}
	}
	return workload.NextAction{Action: workload.ActWrite, Reason: e.Message, Write: w, Failure: e}
}

// takeOver restores what the previous holder borrowed and replaces its claim with this operation's, in one write.
func takeOver(req Request, seen Observed, reason string) workload.NextAction {
	w, _ := restoreWrite(seen, "take-over")
	w.Release, w.Claim, w.OnlyIfUnchanged = false, req.Claim, true
	w.Remove = slices.DeleteFunc(w.Remove, func(name string) bool { return name == workload.AnnotationOriginal })
	w.Annotations[workload.AnnotationOriginal] = Original{Operation: req.Operation, BegunAt: seen.Now.UTC()}.String()
	return write(reason, w)
}

// restoreWrite returns the write that restores all borrowed settings and releases the claim. A setting that no longer
// has the borrowed value was changed by another client: it stays, and the notes report it.
func restoreWrite(seen Observed, step string) (w *workload.Write, notes string) {
	w = &workload.Write{Step: step, ExpectedClaim: seen.Claim, Release: true, Annotations: map[string]string{},
		Remove: []string{workload.AnnotationOriginal}}
	o := seen.Original
	if o == nil {
		return w, ""
	}
	var foreign []string
	for _, b := range o.Borrowed {
		switch now := seen.Settings[b.Path]; {
		case workload.SameJSON(now, b.Temporary):
			w.Settings = append(w.Settings, workload.Setting{Path: b.Path, Value: b.Own, Expected: now})
		case !workload.SameJSON(now, b.Own):
			foreign = append(foreign, b.Path)
		}
	}
	if len(foreign) > 0 {
		notes = fmt.Sprintf("; another client changed %s meanwhile, which is left unchanged",
			strings.Join(foreign, " and "))
	}
	markSize(seen, w)
	return w, notes
}

// markSize writes on the workload what a later START or STOP needs to know of its size (AnnotationReplicas,
// AnnotationLeftAt).
func markSize(seen Observed, w *workload.Write) {
	o := seen.Original
	if o.Size == nil {
		return
	}
	foreign := o.Requested != nil && *o.Requested != seen.Replicas
	switch {
	case seen.Replicas == 0:
		w.Annotations[workload.AnnotationReplicas] = strconv.Itoa(int(*o.Size))
		w.Remove = append(w.Remove, workload.AnnotationLeftAt)
	case foreign, o.scalesUp() && seen.Replicas >= *o.Size:
		w.Remove = append(w.Remove, workload.AnnotationReplicas, workload.AnnotationLeftAt)
	default:
		w.Annotations[workload.AnnotationReplicas] = strconv.Itoa(int(*o.Size))
		w.Annotations[workload.AnnotationLeftAt] = strconv.Itoa(int(seen.Replicas))
	}
}

// scalesUp reports whether the operation's target size is positive.
func (o Original) scalesUp() bool {
	return o.Operation == plan.Start || o.Operation == plan.Restore && o.Target != nil && *o.Target > 0
}

// sizeOf returns the workload's size, nil for a kind without a size.
func sizeOf(req Request, seen Observed) *int32 {
	if !req.Workload.WorkloadRef.Sized() {
		return nil
	}
	return new(seen.Replicas)
}
