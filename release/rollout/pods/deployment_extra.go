package pods

import (
	"cmp"
	"encoding/json"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// deploymentExtra runs the new version in a second Deployment; the workload itself is not touched until the end.
type deploymentExtra struct {
	deployment
	// declared is true if the workload's own template is the new version's; a pause holds it until the end.
	declared bool
}

func (k deploymentExtra) Pointers() []string {
	if k.declared {
		return []string{pathPaused}
	}
	return nil
}

func (deploymentExtra) usesExtraWorkload() bool { return true }

// finalSettings ends the pause set by haltUpdate, or the one that holds what the workload declares; nothing else is
// borrowed.
func (k deploymentExtra) finalSettings(seen Observed) (first, last []workload.Setting) {
	if k.declared {
		return []workload.Setting{{Path: pathPaused, Value: seen.savedSetting(pathPaused)}}, nil
	}
	if seen.Rest != nil && string(seen.Rest.Settings[pathPaused]) == "true" {
		first = []workload.Setting{{Path: pathPaused, Value: json.RawMessage("null")}}
	}
	return first, nil
}

// pauseSettings keeps the pause set by haltUpdate, and the one that holds what the workload declares.
func (k deploymentExtra) pauseSettings(_ task, seen Observed) []workload.Setting {
	if first, _ := k.finalSettings(seen); len(first) > 0 {
		return []workload.Setting{pause}
	}
	return nil
}

var pause = workload.Setting{Path: pathPaused, Value: json.RawMessage("true")}

// haltUpdate pauses the workload, which was not paused when the rollout began. The pause record distinguishes this
// pause from another client's.
func (deploymentExtra) haltUpdate(_ Revision, seen Observed) (NextAction, bool) {
	return pauseAndSettle(seen, rollout.SettledState{Settings: map[string]json.RawMessage{pathPaused: pause.Value}},
		pause)
}

// restoreWorkload sets the stable template again after another client changed it, once the workload's own controller
// moves no pods, and ends the pause set for that. A workload that declares the new version is paused instead.
func (k deploymentExtra) restoreWorkload(seen Observed) (NextAction, bool) {
	if k.declared {
		w := &workload.Write{Step: "hold", Settings: seen.settingsToWrite(pause)}
		// it was replaced by the stable one for a while
		if seen.Template != seen.Declared && seen.Next == seen.Declared {
			w.Template = &workload.Template{}
		}
		return set("pause the workload, whose pods its own controller would replace", w), !empty(w)
	}
	resumed, _ := k.finalSettings(seen)
	w := &workload.Write{Step: "put-back", Settings: resumed}
	if len(resumed) > 0 {
		w.Annotations = map[string]string{rollout.AnnotationSettled: rollout.SettledState{}.String()}
	}
	if seen.Template != seen.Saved.StableTemplate {
		if d, waits := k.haltUpdate(Revision{}, seen); waits {
			return d, true
		}
		w.Template = &workload.Template{Revision: seen.Saved.Stable}
	}
	return set("restore the workload's stable template", w), !empty(w)
}

// next creates the extra Deployment and scales it, but only up: a step back moves traffic, not pods.
func (k deploymentExtra) next(t task, seen Observed) NextAction {
	if d, disturbed := k.restoreWorkload(seen); disturbed {
		return d
	}
	e, w := seen.Extra, t.Request.Workload
	switch {
	case e == nil && t.Target == 0:
		return done("no pod is asked for yet")
	case e == nil:
		return changeExtra(ExtraChange{Create: &t.Target}, "create %s with %d new pods", seen.Saved.CanaryWorkload,
			t.Target)
	case e.CanaryOf != strategy.CanaryOf(w.WorkloadRef.Name):
		return failf(failure.Refused, "%s: a Deployment %s exists that does not belong to this rollout: delete or "+
			"rename it, then retry", w, e.Name)
	case e.Deleting:
		return wait("its previous extra workload is being deleted")
	case e.Template != cmp.Or(t.Request.Template, seen.Expected) && t.Request.OverwriteDrift:
		return changeExtra(ExtraChange{PutBack: true}, "restore the rollout's template on %s", e.Name)
	case e.Template != cmp.Or(t.Request.Template, seen.Expected):
		return failDrift(t.Request.Subject, "changed the pod template of "+e.Name)
	case e.Replicas < t.Target:
		return changeExtra(ExtraChange{Replicas: &t.Target}, "grow %s from %d to %d new pods", e.Name, e.Replicas,
			t.Target)
	case e.Lagging():
		return wait("the controller of " + e.Name + " has not seen its last change yet")
	case t.Request.OverwriteDrift && !stablePodsRestored(seen):
		return wait("its own controller is bringing the stable pods back")
	}
	return done("")
}

// stablePodsRestored reports whether the stable pods are ready again after another client's edit, within the workload's
// limits: then a Service may select them.
func stablePodsRestored(seen Observed) bool {
	stable, _ := seen.RevisionByName(seen.Saved.Stable)
	total, ready := seen.Count(stable)
	unavailable, _ := currentLimits(seen)
	return total >= seen.Replicas && ready >= seen.Replicas-unavailable
}
