package operation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// beginStarting decides on the first step of START: to the remembered size, otherwise to the catalogue's.
func beginStarting(req Request, seen Observed) workload.NextAction {
	target, grow := startSize(req, seen)
	if !grow {
		if seen.ready() {
			return finish(req, seen, workload.Result{Message: "nothing to do: " + readyOf(seen)})
		}
		return write("it has pods already: wait until they are ready", claimWrite(req, seen, Original{}))
	}
	first := nextSize(req, seen.Replicas, target)
	w := claimWrite(req, seen, Original{Size: new(target), Requested: new(first), Changed: true})
	w.Replicas, w.ExpectedReplicas = new(first), seen.Replicas
	return write(fmt.Sprintf("scale it from %d to %d%s", seen.Replicas, first, targetNote(first, target)), w)
}

// startSize returns the target size of START, and whether the workload is smaller. RefusalReason has made sure that
// there is one.
func startSize(req Request, seen Observed) (target int32, grow bool) {
	if n, ok := seen.rememberedSize(); ok {
		return n, true
	}
	if seen.Replicas > 0 {
		return seen.Replicas, false
	}
	return *req.Workload.Replicas, true
}

func step(seen Observed, size int32) *workload.Write {
	next := *seen.Original
	next.Requested = new(size)
	return &workload.Write{Step: "step", ExpectedClaim: seen.Claim, Replicas: next.Requested,
		ExpectedReplicas: seen.Replicas, Annotations: map[string]string{workload.AnnotationOriginal: next.String()}}
}

// targetNote returns a note on the final size, if it differs from the size that is set now.
func targetNote(now, target int32) string {
	if now == target {
		return ""
	}
	return fmt.Sprintf(", on the way to %d", target)
}

// readyOf reports how many of the requested pods are available, at most the size: "2 of 3 pods are ready".
func readyOf(seen Observed) string {
	return fmt.Sprintf("%d of %d pods are ready", min(seen.Available, seen.Replicas), seen.Replicas)
}

// progressOf is readyOf for a job that waits. It names what is missing if that is not the readiness of pods.
func progressOf(seen Observed) string {
	text := readyOf(seen) + unavailableNote(seen)
	switch {
	case seen.Lagging():
		return text + ", its controller has not seen the last change yet"
	case seen.Available >= seen.Replicas && seen.terminating():
		return text + fmt.Sprintf(", %s still terminating", podsAre(*seen.Terminating))
	}
	return text
}

// unavailableNote says that pods are ready, but not for long enough: readyOf counts available ones.
func unavailableNote(seen Observed) string {
	note := seen.UnavailableNote()
	if note == "" || seen.MinReadySeconds == 0 {
		return ""
	}
	return " and available, " + note
}

// beginStopping decides on the first step of STOP: scale to zero and remember the size.
func beginStopping(req Request, seen Observed) workload.NextAction {
	if seen.Replicas == 0 {
		if !seen.PodsSeen {
			return workload.Next(workload.ActReadPods, "its size is zero: check whether a pod is left")
		}
		if remainingPods(seen) == 0 {
			return finish(req, seen, workload.Result{Message: "nothing to do: it is stopped, no pod is left"})
		}
		return write("its size is zero: wait until its pods are deleted",
			claimWrite(req, seen, Original{Requested: new(int32(0))}))
	}
	size, half := seen.rememberedSize()
	if !half {
		size = seen.Replicas
	}
	first := nextSize(req, seen.Replicas, 0)
	w := claimWrite(req, seen, Original{Size: new(size), Requested: new(first), Changed: true})
	w.Replicas, w.ExpectedReplicas = new(first), seen.Replicas
	w.Annotations[workload.AnnotationReplicas] = strconv.Itoa(int(size))
	return write(fmt.Sprintf("scale it from %d to %d, remembering %d", seen.Replicas, first, size), w)
}

func continueStopping(req Request, seen Observed) workload.NextAction {
	o := seen.Original
	if seen.resized() {
		return abort(req, seen, failure.New(failure.WorkloadFailed,
			"%s: another client scaled it from %d to %d while it was being stopped: find out which one (an "+
				"autoscaler?), then stop it again", req.Workload, *o.Requested, seen.Replicas))
	}
	if seen.Lagging() || seen.Total > seen.Replicas || seen.terminating() {
		return waitForEnd(req, seen)
	}
	// The status may be outdated, or not count terminating pods: only the pods themselves are authoritative.
	if !seen.PodsSeen && (seen.Replicas == 0 || !countsTerminating(req, seen)) {
		return workload.Next(workload.ActReadPods, "check whether a pod is left")
	}
	if seen.PodsSeen && remainingPods(seen) > seen.Replicas {
		return waitForEnd(req, seen)
	}
	if seen.Replicas > 0 {
		next := seen.Replicas - 1
		return write(fmt.Sprintf("%s left: scale it from %d to %d", podsAre(seen.Replicas), seen.Replicas, next),
			step(seen, next))
	}
	message := "stopped: no pod is left"
	if !o.Changed {
		message = "nothing to do but wait: no pod is left"
	}
	return finish(req, seen, workload.Result{Message: message})
}

// countsTerminating reports whether the status counts terminating pods: a StatefulSet's total includes them; a
// Deployment has a separate number since Kubernetes 1.35.
func countsTerminating(req Request, seen Observed) bool {
	return req.ordered() || seen.Terminating != nil
}

// waitForEnd waits until the pods beyond the size are deleted. An ordered StatefulSet removes them one by one and stops
// at the first that is not ready: the engine then deletes the pods beyond the size itself.
func waitForEnd(req Request, seen Observed) workload.NextAction {
	ordered := req.ordered() && seen.OrderedReady && !seen.Lagging()
	if ordered && (req.Method == plan.Parallel || seen.Ready < seen.Total) {
		if !seen.PodsSeen {
			return workload.Next(workload.ActReadPods, "check which pods are left")
		}
		unready := slices.ContainsFunc(seen.Pods, func(p workload.Pod) bool { return p.Alive() && !p.Ready })
		if extra := beyondSize(seen); len(extra) > 0 && (req.Method == plan.Parallel || unready) {
			return deletePods(extra, "delete %s beyond the size of %d", podNames(extra), seen.Replicas)
		}
	}
	n := seen.Total
	if seen.Terminating != nil {
		n += *seen.Terminating
	}
	if seen.PodsSeen {
		n = remainingPods(seen)
	}
	d := wait(req, seen, fmt.Sprintf("%s left, %d should be", podsAre(n), seen.Replicas))
	d.WatchPods = d.WatchPods || seen.PodsSeen
	return d
}

// remainingPods returns the number of pods that still run or are terminating. Finished pods do not count: they remain
// as records, and no controller removes them.
func remainingPods(seen Observed) int32 {
	return seen.CountPods(func(p workload.Pod) bool { return !p.Finished })
}

// beyondSize returns the StatefulSet's pods beyond its size that are not terminating yet.
func beyondSize(seen Observed) []workload.Pod {
	return slices.DeleteFunc(slices.Clone(seen.Pods), func(p workload.Pod) bool {
		return !p.Alive() || p.Ordinal >= seen.FirstOrdinal && p.Ordinal < seen.FirstOrdinal+seen.Replicas
	})
}

// podsAre formats a number of pods with its verb: "1 pod is", "3 pods are".
func podsAre(n int32) string { return phrase.CountOf(int(n), "pod is", "pods are") }

// RESTORE has up to two parts, template and size. If the target has pods, the template comes first, so that new pods
// have the restored version. If the target size is 0, the pods are removed first, so that no pod is replaced before it
// is removed.

// scalesToZero reports whether the operation ends without pods.
func (r Request) scalesToZero() bool {
	return r.Operation == plan.Stop || r.Operation == plan.Restore && r.Restore.Replicas != nil &&
		*r.Restore.Replicas == 0
}

// needsTemplate reports whether RESTORE still has to restore the template.
func needsTemplate(req Request, seen Observed) bool {
	return req.Restore.Template != nil && seen.Marker != req.Marker
}

// restoredSize returns the target size of RESTORE. It is the current size if the task did not change the size, or if
// another client has changed it since.
func restoredSize(req Request, seen Observed) int32 {
	r := req.Restore
	switch {
	case r.Replicas == nil || !req.Workload.WorkloadRef.Sized():
		return seen.Replicas
	case *r.Replicas == 0 || seen.Replicas == 0:
		return *r.Replicas
	case r.SizeAfter != nil && *r.SizeAfter != seen.Replicas:
		return seen.Replicas
	}
	return *r.Replicas
}

// beginRestoring decides on the first step of RESTORE.
func beginRestoring(req Request, seen Observed) workload.NextAction {
	target := restoredSize(req, seen)
	switch {
	case req.scalesToZero() && (seen.Replicas > 0 || !needsTemplate(req, seen)):
		return beginStopping(req, seen)
	case seen.Replicas == 0 && target > 0:
		return beginSizing(req, seen, target)
	case req.Restore.Template != nil:
		d := beginReplacing(req, seen)
		if d.Result != nil && target != seen.Replicas {
			return beginSizing(req, seen, target)
		}
		return extendMessage(d, "", keptSizeNote(req, seen))
	case target != seen.Replicas:
		return beginSizing(req, seen, target)
	case seen.ready():
		return finish(req, seen, workload.Result{Message: "nothing to do: " + readyOf(seen) + keptSizeNote(req, seen)})
	}
	return write("it already has its size: wait until its pods are ready",
		claimWrite(req, seen, Original{Target: new(target), Requested: new(target)}))
}

// keptSizeNote returns a note on a size that another client has set since the task, and that RESTORE keeps.
func keptSizeNote(req Request, seen Observed) string {
	if r := req.Restore; r.Replicas != nil && seen.Replicas > 0 && *r.Replicas != seen.Replicas && !req.scalesToZero() {
		return fmt.Sprintf("; another client, such as an autoscaler, has changed its size since then, which is left "+
			"unchanged (%d before, %d now)", *r.Replicas, seen.Replicas)
	}
	return ""
}

// beginSizing decides on the first change of the size. If the workload has no pods, the same write restores the
// template.
func beginSizing(req Request, seen Observed, target int32) workload.NextAction {
	first := nextSize(req, seen.Replicas, target)
	if req.Method == plan.Sequential && seen.Replicas > 0 && !seen.ready() {
		first = seen.Replicas // no further pod may become unavailable
	}
	w := claimWrite(req, seen, Original{Size: new(target), Target: new(target), Requested: new(first), Changed: true})
	w.Replicas, w.ExpectedReplicas = new(first), seen.Replicas
	reason := fmt.Sprintf("scale it from %d to %d%s", seen.Replicas, first, targetNote(first, target))
	if first == seen.Replicas {
		reason = fmt.Sprintf("wait until its pods are ready, on the way to %d", target)
	}
	if needsTemplate(req, seen) {
		w.Template = &workload.Template{}
		reason = "put " + req.versionName() + " back and " + reason
	}
	return write(reason, w)
}

// nextSize returns the next size between from and to: SEQUENTIAL changes it by one pod at a time.
func nextSize(req Request, from, to int32) int32 {
	switch {
	case req.Method != plan.Sequential || from == to:
		return to
	case from < to:
		return from + 1
	}
	return from - 1
}

func continueRestoring(req Request, seen Observed) workload.NextAction {
	o := seen.Original
	switch {
	case o.Requested == nil:
		return continueTemplate(req, seen)
	case o.Target == nil:
		return continueToZero(req, seen)
	}
	return continueSizing(req, seen)
}

// continueTemplate replaces the pods, and continues with the size once all have the restored template.
func continueTemplate(req Request, seen Observed) workload.NextAction {
	d := continueReplacing(req, seen)
	target := restoredSize(req, seen)
	if d.Result == nil || seen.Replicas == 0 {
		return d
	}
	if target == seen.Replicas {
		return extendMessage(d, "", keptSizeNote(req, seen))
	}
	next := *seen.Original
	next.Size, next.Target, next.Requested, next.Changed = new(target), new(target),
		new(nextSize(req, seen.Replicas, target)), true
	return write(fmt.Sprintf("its pods are %s: scale it from %d to %d", pastTense(req.Operation), seen.Replicas,
		*next.Requested),
		&workload.Write{Step: "size", ExpectedClaim: seen.Claim, Replicas: next.Requested, ExpectedReplicas: seen.Replicas,
			Annotations: map[string]string{workload.AnnotationOriginal: next.String()}})
}

// continueToZero removes the pods, and restores the template once none is left.
func continueToZero(req Request, seen Observed) workload.NextAction {
	d := continueStopping(req, seen)
	switch {
	case d.Result == nil:
		return d
	case needsTemplate(req, seen):
		next := *seen.Original
		next.Changed = true
		return write("no pod is left: put "+req.versionName()+" back",
			&workload.Write{Step: "template", ExpectedClaim: seen.Claim, OnlyIfUnchanged: true, Template: &workload.Template{},
				Annotations: map[string]string{workload.AnnotationOriginal: next.String()}})
	case req.Restore.Template != nil:
		return extendMessage(d, "restored "+req.versionName()+"; ", "")
	}
	return d
}

// extendMessage adds text before and after the result's message, if there is a result.
func extendMessage(d workload.NextAction, before, after string) workload.NextAction {
	if d.Result != nil {
		d.Result.Message = before + d.Result.Message + after
		d.Reason = d.Result.Message
	}
	return d
}

// continueSizing changes the size step by step, for START and RESTORE. It keeps a size that another client sets
// meanwhile.
func continueSizing(req Request, seen Observed) workload.NextAction {
	o, done, restores := seen.Original, pastTense(req.Operation), req.Operation == plan.Restore
	target, note := *cmp.Or(o.Target, o.Size, &seen.Replicas), ""
	switch foreign := seen.resized(); {
	case restores && needsTemplate(req, seen):
		return failTemplateChanged(req, seen)
	case seen.Replicas == 0 && (foreign || !restores):
		return abort(req, seen, failure.New(failure.WorkloadFailed,
			"%s: another client scaled it to zero while it was being %s", req.Workload, done))
	case foreign:
		target, note = seen.Replicas, fmt.Sprintf("; another client scaled it from %d to %d meanwhile", *o.Requested,
			seen.Replicas)
	}
	switch {
	case restores && !seen.Lagging() && seen.Total > seen.Replicas:
		return waitForEnd(req, seen)
	case !seen.ready() || restores && seen.terminating():
		return wait(req, seen, progressOf(seen)+targetNote(seen.Replicas, target)+note)
	case shrunk(req, seen) && !seen.PodsSeen:
		return workload.Next(workload.ActReadPods, "check whether a pod beyond its size is left")
	case shrunk(req, seen) && remainingPods(seen) > seen.Replicas:
		return waitForEnd(req, seen)
	case seen.Replicas != target:
		next := nextSize(req, seen.Replicas, target)
		return write(fmt.Sprintf("%s: scale it from %d to %d%s", readyOf(seen), seen.Replicas, next,
			targetNote(next, target)), step(seen, next))
	}
	message := done + ": " + readyOf(seen)
	if !o.Changed {
		message = "nothing to do but wait: " + readyOf(seen)
	}
	return finish(req, seen, workload.Result{Message: message + note})
}

// shrunk reports whether pods were removed whose termination the status does not show, so that the pods themselves have
// to be read.
func shrunk(req Request, seen Observed) bool {
	from := seen.Original.FromReplicas
	return req.Operation == plan.Restore && from != nil && *from > seen.Replicas && !countsTerminating(req, seen)
}
