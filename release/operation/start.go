package operation

import (
	"fmt"

	"slipway.io/slipway/release/failure"
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
	first := target
	if req.Method == plan.Sequential {
		first = seen.Replicas + 1
	}
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

func continueStarting(req Request, seen Observed) workload.NextAction {
	o := seen.Original
	if seen.Replicas == 0 {
		return abort(req, seen, failure.New(failure.WorkloadFailed,
			"%s: another client scaled it to zero while it was being started", req.Workload))
	}
	target := seen.Replicas
	note := ""
	switch foreign := o.Requested != nil && *o.Requested != seen.Replicas; {
	case foreign:
		// Another client chose that size: it is kept, and not increased further.
		note = fmt.Sprintf("; another client scaled it from %d to %d meanwhile", *o.Requested, seen.Replicas)
	case o.Size != nil:
		target = *o.Size
	}
	if !seen.ready() {
		return wait(req, seen, readyOf(seen)+targetNote(seen.Replicas, target)+note)
	}
	if seen.Replicas < target {
		next := seen.Replicas + 1
		return write(fmt.Sprintf("%s: scale it from %d to %d%s", readyOf(seen), seen.Replicas, next,
			targetNote(next, target)), step(seen, next))
	}
	message := "started: " + readyOf(seen)
	if !o.Changed {
		message = "nothing to do but wait: " + readyOf(seen)
	}
	return finish(req, seen, workload.Result{Message: message + note})
}

func step(seen Observed, size int32) *workload.Write {
	next := *seen.Original
	next.Requested = new(size)
	return &workload.Write{Step: "step", ExpectedClaim: seen.Claim, Replicas: next.Requested, ExpectedReplicas: seen.Replicas,
		Annotations: map[string]string{workload.AnnotationOriginal: next.String()}}
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
