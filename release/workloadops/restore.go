package workloadops

import (
	"fmt"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// RESTORE has up to two parts. A workload with pods gets its template first and its size then, so that pods that come up are of the restored version.
// One that is to have none loses its pods first, so that none is replaced on its way out.

// stops says whether the operation ends with no pod.
func (r Request) stops() bool {
	return r.Operation == plan.Stop || r.Operation == plan.Restore && r.Restore.Replicas != nil && *r.Restore.Replicas == 0
}

// templated says whether RESTORE still has to put the template back.
func templated(req Request, seen Observed) bool {
	return req.Restore.Template != nil && seen.Marker != req.Marker
}

// restoredSize is the size that RESTORE brings a workload to: its own where the task left that alone, or where somebody has set another one
// since.
func restoredSize(req Request, seen Observed) int32 {
	r := req.Restore
	switch {
	case r.Replicas == nil || req.Workload.WorkloadRef.Kind == KindDaemonSet:
		return seen.Replicas
	case *r.Replicas == 0 || seen.Replicas == 0:
		return *r.Replicas
	case r.Left != nil && *r.Left != seen.Replicas:
		return seen.Replicas
	}
	return *r.Replicas
}

// beginRestoring decides on the first step of RESTORE.
func beginRestoring(req Request, seen Observed) NextAction {
	target := restoredSize(req, seen)
	switch {
	case req.stops() && (seen.Replicas > 0 || !templated(req, seen)):
		return beginStopping(req, seen)
	case seen.Replicas == 0 && target > 0:
		return beginSizing(req, seen, target)
	case req.Restore.Template != nil:
		d := beginReplacing(req, seen)
		if d.Result != nil && target != seen.Replicas {
			return beginSizing(req, seen, target)
		}
		return alsoSays(d, "", leftSize(req, seen))
	case target != seen.Replicas:
		return beginSizing(req, seen, target)
	case seen.ready():
		return finish(req, seen, Result{Message: "nothing to do: " + readyOf(seen) + leftSize(req, seen)})
	}
	return write("it has its size already: wait until its pods are ready", hold(req, seen, Original{Target: new(target), Asked: new(target)}))
}

// leftSize tells of a size that somebody has set since the task, and that is left.
func leftSize(req Request, seen Observed) string {
	if r := req.Restore; r.Replicas != nil && seen.Replicas > 0 && *r.Replicas != seen.Replicas && !req.stops() {
		return fmt.Sprintf("; somebody else, an autoscaler for instance, has set its size since then, which is left (%d before, %d now)",
			*r.Replicas, seen.Replicas)
	}
	return ""
}

// beginSizing decides on the first change of the size, with which the template comes where it is not there yet: the workload has no pods then.
func beginSizing(req Request, seen Observed, target int32) NextAction {
	first := towards(req, seen.Replicas, target)
	if req.Method == plan.Sequential && seen.Replicas > 0 && !seen.ready() {
		first = seen.Replicas // no further pod may be missing beside those that are
	}
	w := hold(req, seen, Original{Size: new(target), Target: new(target), Asked: new(first), Changed: true})
	w.Replicas, w.WasReplicas = new(first), seen.Replicas
	reason := fmt.Sprintf("scale it from %d to %d%s", seen.Replicas, first, onTheWay(first, target))
	if first == seen.Replicas {
		reason = fmt.Sprintf("wait until its pods are ready, on the way to %d", target)
	}
	if templated(req, seen) {
		w.Template = &Template{}
		reason = "put " + req.what() + " back and " + reason
	}
	return write(reason, w)
}

// towards is the next size on the way to another one: SEQUENTIAL goes pod by pod.
func towards(req Request, from, to int32) int32 {
	switch {
	case req.Method != plan.Sequential || from == to:
		return to
	case from < to:
		return from + 1
	}
	return from - 1
}

func goOnRestoring(req Request, seen Observed) NextAction {
	o := seen.Original
	switch {
	case o.Asked == nil:
		return goOnTemplate(req, seen)
	case o.Target == nil:
		return goOnToNone(req, seen)
	}
	return goOnSizing(req, seen)
}

// goOnTemplate replaces the pods, and goes on with the size once they are of the restored template.
func goOnTemplate(req Request, seen Observed) NextAction {
	d := goOnReplacing(req, seen)
	target := restoredSize(req, seen)
	if d.Result == nil || seen.Replicas == 0 {
		return d
	}
	if target == seen.Replicas {
		return alsoSays(d, "", leftSize(req, seen))
	}
	next := *seen.Original
	next.Size, next.Target, next.Asked, next.Changed = new(target), new(target), new(towards(req, seen.Replicas, target)), true
	return write(fmt.Sprintf("its pods are %s: scale it from %d to %d", done(req.Operation), seen.Replicas, *next.Asked),
		&Write{Step: "size", Held: seen.Claim, Replicas: next.Asked, WasReplicas: seen.Replicas,
			Annotations: map[string]string{AnnotationOriginal: next.String()}})
}

// goOnToNone takes the pods away, and puts the template back once there is none.
func goOnToNone(req Request, seen Observed) NextAction {
	d := goOnStopping(req, seen)
	switch {
	case d.Result == nil:
		return d
	case templated(req, seen):
		next := *seen.Original
		next.Changed = true
		return write("no pod is left: put "+req.what()+" back", &Write{Step: "template", Held: seen.Claim, Fresh: true, Template: &Template{},
			Annotations: map[string]string{AnnotationOriginal: next.String()}})
	case req.Restore.Template != nil:
		return alsoSays(d, "restored "+req.what()+"; ", "")
	}
	return d
}

// alsoSays adds to what a result says.
func alsoSays(d NextAction, before, after string) NextAction {
	if d.Result != nil {
		d.Result.Message = before + d.Result.Message + after
		d.Reason = d.Result.Message
	}
	return d
}

// goOnSizing goes to the size step by step. Whoever scales it meanwhile wants that size: it is not fought over.
func goOnSizing(req Request, seen Observed) NextAction {
	o := seen.Original
	target, note := *o.Target, ""
	switch foreign := *o.Asked != seen.Replicas; {
	case templated(req, seen):
		return changedTemplate(req, seen)
	case foreign && seen.Replicas == 0:
		return abort(req, seen, failure.New(failure.WorkloadFailed,
			"%s: somebody else scaled it to zero while it was being restored", req.Workload))
	case foreign:
		target, note = seen.Replicas, fmt.Sprintf("; somebody else scaled it from %d to %d meanwhile", *o.Asked, seen.Replicas)
	}
	switch {
	case !seen.Lagging() && seen.Total > seen.Replicas:
		return waitForEnd(req, seen)
	case !seen.ready() || seen.terminating():
		return wait(req, seen, readyOf(seen)+onTheWay(seen.Replicas, target)+note)
	case shrunk(req, seen) && !seen.PodsSeen:
		return Next(ActLook, "see whether a pod beyond its size is left")
	case shrunk(req, seen) && left(seen) > seen.Replicas:
		return waitForEnd(req, seen)
	case seen.Replicas != target:
		next := towards(req, seen.Replicas, target)
		return write(fmt.Sprintf("%s: scale it from %d to %d%s", readyOf(seen), seen.Replicas, next, onTheWay(next, target)), step(seen, next))
	}
	message := "restored: " + readyOf(seen)
	if !o.Changed {
		message = "nothing to do but wait: " + readyOf(seen)
	}
	return finish(req, seen, Result{Message: message + note})
}

// shrunk says that pods were taken away whose end the status doesn't tell: the pods themselves do.
func shrunk(req Request, seen Observed) bool {
	from := seen.Original.FromReplicas
	return from != nil && *from > seen.Replicas && !countsTerminating(req, seen)
}
