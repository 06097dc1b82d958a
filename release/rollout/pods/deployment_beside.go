package pods

import (
	"cmp"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// surgeOf is the surge that brings so many pods: as the step says it where that comes to as many, so that it goes on to when somebody scales
// the workload, and so that others can read the step from it.
func surgeOf(t task, pods int32) intstr.IntOrString {
	asked := t.Request.Replicas
	if pods == t.Target && strategy.ShareUp(asked, t.Size) == pods {
		return asked
	}
	return intstr.FromInt32(pods)
}

// deploymentBlueGreen adds new pods and keeps every old one: at rest none goes, while maxUnavailable is 0.
type deploymentBlueGreen struct{ deployment }

// next surges by the step's number of pods, in one write.
func (deploymentBlueGreen) next(t task, seen Observed) NextAction {
	_, surge := currentLimits(seen)
	switch {
	case t.Target == 0 && (!t.Placed || t.Aim.Hash == ""):
		return done("no pod is asked for yet")
	case t.Placed && !seen.has(minReadyGate) && t.Aim.Hash != "":
		gated := movingOn(surgeOf(t, max(surge, t.Target, 1)), seen)
		return set("put the gate back, which somebody else has taken away", t.write("gate", seen.changed(gated...)))
	case !t.Placed, !seen.has(minReadyGate), surge < t.Target:
		w := t.write("grow", seen.changed(movingOn(surgeOf(t, max(t.Target, 1)), seen)...))
		return set(fmt.Sprintf("bring up %d new pods beside the others", t.Target), w)
	case paused(seen):
		return set("resume it, which somebody else has paused", t.write("resume", seen.changed(movingOn(surgeOf(t, surge), seen)...)))
	}
	return done("")
}

// movingOn are the settings while a blue-green's pods move. One that somebody else has paused would bring no pod.
func movingOn(surge intstr.IntOrString, seen Observed) []workloadops.Setting {
	settings := append(moving(0, 0, seen), workloadops.Setting{Path: pathPaused, Value: seen.own(pathPaused)})
	settings[0].Value = rollingShare(intstr.FromInt32(0), surge)
	return settings
}

// original are a Deployment's own limits, with Kubernetes' defaults, which stand for those of a type Recreate as well.
func (deploymentBlueGreen) original(saved rollout.Saved) rollout.OriginalStrategy {
	own, deadline := rollingUpdateOf(saved.Settings[pathStrategy]), int32(600)
	if recreates(saved.Settings[pathStrategy]) {
		own = rollingUpdateOf(json.RawMessage(`{"rollingUpdate":{}}`))
	}
	if raw := saved.Settings[pathProgressDeadline]; !workloadops.AbsentJSON(raw) {
		_ = json.Unmarshal(raw, &deadline) // the API server has checked it
	}
	return rollout.OriginalStrategy{MaxUnavailable: own.MaxUnavailable, MaxSurge: own.MaxSurge, MinReadySeconds: ownMinReady(saved),
		ProgressDeadlineSeconds: &deadline}
}

// ownMinReady is the minReadySeconds that a workload had, 0 for none.
func ownMinReady(saved rollout.Saved) (seconds int32) {
	if raw := saved.Settings[pathMinReadySeconds]; !workloadops.AbsentJSON(raw) {
		_ = json.Unmarshal(raw, &seconds) // the API server has checked it
	}
	return seconds
}

// originalStrategy are the limits of before, as other tools read them beside a blue-green; false for other techniques.
func originalStrategy(tech Technique, saved rollout.Saved) (rollout.OriginalStrategy, bool) {
	k, is := tech.(interface {
		original(saved rollout.Saved) rollout.OriginalStrategy
	})
	if !is {
		return rollout.OriginalStrategy{}, false
	}
	return k.original(saved), true
}

// deploymentExtra runs the new version in a second Deployment; the workload itself is not touched until the end.
type deploymentExtra struct {
	deployment
	// declared says that the workload's own template is the new version's: it is held by a pause until the end.
	declared bool
}

// pathsPaused is what a rollout borrows of a workload that declares the new version while an extra one runs it.
var pathsPaused = []string{pathPaused}

func (k deploymentExtra) Pointers() []string {
	if k.declared {
		return pathsPaused
	}
	return nil
}

func (deploymentExtra) untouched() bool { return true }

// home ends the pause of calm, or that by which what the workload declares is held; nothing else is borrowed.
func (k deploymentExtra) home(seen Observed) (first, last []workloadops.Setting) {
	if k.declared {
		return []workloadops.Setting{{Path: pathPaused, Value: seen.own(pathPaused)}}, nil
	}
	if seen.Rest != nil && string(seen.Rest.Settings[pathPaused]) == "true" {
		first = []workloadops.Setting{{Path: pathPaused, Value: json.RawMessage("null")}}
	}
	return first, nil
}

// rest keeps the pause of calm where the workload is brought to rest meanwhile, and that of what it declares.
func (k deploymentExtra) rest(_ task, seen Observed) []workloadops.Setting {
	if first, _ := k.home(seen); len(first) > 0 {
		return []workloadops.Setting{pause}
	}
	return nil
}

var pause = workloadops.Setting{Path: pathPaused, Value: json.RawMessage("true")}

// calm pauses the workload, which was not paused when the rollout began; the mark tells it from somebody else's pause.
func (deploymentExtra) calm(_ Revision, seen Observed) (NextAction, bool) {
	return calmed(seen, rollout.Rest{Settings: map[string]json.RawMessage{pathPaused: pause.Value}}, pause)
}

// putBack gives the workload its stable template back, which somebody else has changed, once its own controller moves no pods; it ends the
// pause of that as well.
func (k deploymentExtra) putBack(seen Observed) (NextAction, bool) {
	if k.declared {
		w := &workloadops.Write{Step: "hold", Settings: seen.changed(pause)}
		if seen.Template != seen.Declared && seen.Next == seen.Declared { // it had to give way to the stable one for a while
			w.Template = &workloadops.Template{}
		}
		return set("pause the workload, whose pods its own controller would replace", w), !empty(w)
	}
	resumed, _ := k.home(seen)
	w := &workloadops.Write{Step: "put-back", Settings: resumed}
	if len(resumed) > 0 {
		w.Annotations = map[string]string{rollout.AnnotationRest: rollout.Rest{}.String()}
	}
	if seen.Template != seen.Saved.StableTemplate {
		if d, waits := k.calm(Revision{}, seen); waits {
			return d, true
		}
		w.Template = &workloadops.Template{Revision: seen.Saved.Stable}
	}
	return set("give the workload its stable template back", w), !empty(w)
}

// next sees to the extra Deployment and its size, which only grows: a step back moves traffic, not pods.
func (k deploymentExtra) next(t task, seen Observed) NextAction {
	if d, disturbed := k.putBack(seen); disturbed {
		return d
	}
	e, w := seen.Extra, t.Request.Workload
	switch {
	case e == nil && t.Target == 0:
		return done("no pod is asked for yet")
	case e == nil:
		return changeExtra(ExtraChange{Create: &t.Target}, "create %s with %d new pods", seen.Saved.CanaryWorkload, t.Target)
	case e.Of != strategy.CanaryOf(w.WorkloadRef.Name):
		return failf(failure.Refused, "%s: a Deployment %s is there that is not this rollout's: delete or rename it, then retry", w, e.Name)
	case e.Deleting:
		return wait("its extra workload of before is being deleted")
	case e.Template != cmp.Or(t.Request.Template, seen.Expected) && t.Request.PutBack:
		return changeExtra(ExtraChange{PutBack: true}, "give %s the rollout's template back", e.Name)
	case e.Template != cmp.Or(t.Request.Template, seen.Expected):
		return drift(t.Request.Subject, "changed the pod template of "+e.Name)
	case e.Replicas < t.Target:
		return changeExtra(ExtraChange{Replicas: &t.Target}, "grow %s from %d to %d new pods", e.Name, e.Replicas, t.Target)
	case e.Lagging():
		return wait("the controller of " + e.Name + " has not seen its last change yet")
	case t.Request.PutBack && !stableIsBack(seen):
		return wait("its own controller is bringing the stable pods back")
	}
	return done("")
}

// stableIsBack says whether the stable pods are back after somebody's edit, within the workload's limits: then a Service may select them.
func stableIsBack(seen Observed) bool {
	stable, _ := seen.Find(seen.Saved.Stable)
	total, ready := seen.Count(stable)
	unavailable, _ := currentLimits(seen)
	return total >= seen.Replicas && ready >= seen.Replicas-unavailable
}
