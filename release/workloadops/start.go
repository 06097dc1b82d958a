package workloadops

import (
	"fmt"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// beginStarting decides on the first step of START: back to the remembered size, else to the catalogue's.
func beginStarting(req Request, seen Observed) NextAction {
	target, grow := startSize(req, seen)
	if !grow {
		if seen.ready() {
			return finish(req, seen, Result{Message: "nothing to do: " + readyOf(seen)})
		}
		return write("it has pods already: wait until they are ready", hold(req, seen, Original{}))
	}
	first := target
	if req.Method == plan.Sequential {
		first = seen.Replicas + 1
	}
	w := hold(req, seen, Original{Size: new(target), Asked: new(first), Changed: true})
	w.Replicas, w.WasReplicas = new(first), seen.Replicas
	return write(fmt.Sprintf("scale it from %d to %d%s", seen.Replicas, first, onTheWay(first, target)), w)
}

// startSize is the size that START has to reach, and whether the workload is smaller. Refuses has made sure that there is one.
func startSize(req Request, seen Observed) (target int32, grow bool) {
	if n, ok := seen.remembered(); ok {
		return n, true
	}
	if seen.Replicas > 0 {
		return seen.Replicas, false
	}
	return *req.Workload.Replicas, true
}

func goOnStarting(req Request, seen Observed) NextAction {
	o := seen.Original
	if seen.Replicas == 0 {
		return abort(req, seen, failure.New(failure.WorkloadFailed,
			"%s: somebody else scaled it to zero while it was being started", req.Workload))
	}
	target := seen.Replicas
	note := ""
	switch foreign := o.Asked != nil && *o.Asked != seen.Replicas; {
	case foreign:
		// Whoever scaled it wants that size: it is not fought over, and not grown further.
		note = fmt.Sprintf("; somebody else scaled it from %d to %d meanwhile", *o.Asked, seen.Replicas)
	case o.Size != nil:
		target = *o.Size
	}
	if !seen.ready() {
		return wait(req, seen, readyOf(seen)+onTheWay(seen.Replicas, target)+note)
	}
	if seen.Replicas < target {
		next := seen.Replicas + 1
		return write(fmt.Sprintf("%s: scale it from %d to %d%s", readyOf(seen), seen.Replicas, next, onTheWay(next, target)), step(seen, next))
	}
	message := "started: " + readyOf(seen)
	if !o.Changed {
		message = "nothing to do but wait: " + readyOf(seen)
	}
	return finish(req, seen, Result{Message: message + note})
}

func step(seen Observed, size int32) *Write {
	next := *seen.Original
	next.Asked = new(size)
	return &Write{Step: "step", Held: seen.Claim, Replicas: next.Asked, WasReplicas: seen.Replicas,
		Annotations: map[string]string{AnnotationOriginal: next.String()}}
}

// onTheWay says what size comes in the end, when that is not the one that is asked for now.
func onTheWay(now, target int32) string {
	if now == target {
		return ""
	}
	return fmt.Sprintf(", on the way to %d", target)
}

// readyOf says how many pods are ready, of how many: available ones, and none beyond what is asked for.
func readyOf(seen Observed) string {
	return fmt.Sprintf("%d of %d pods are ready", min(seen.Available, seen.Replicas), seen.Replicas)
}
