package pods

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// surgeOf returns the surge that brings this many pods. If the step's own value (such as a share) gives the same
// number, it is used as written: so the surge follows the workload's size, and other tools can recognise the step in
// it.
func surgeOf(t task, pods int32) intstr.IntOrString {
	asked := t.Request.Replicas
	if pods == t.Target && strategy.PodsRoundedUp(asked, t.Size) == pods {
		return asked
	}
	return intstr.FromInt32(pods)
}

// deploymentBlueGreen adds new pods and keeps every old one: with maxUnavailable 0 none is removed.
type deploymentBlueGreen struct{ deployment }

// next surges by the step's number of pods, in one write.
func (deploymentBlueGreen) next(t task, seen Observed) NextAction {
	_, surge := currentLimits(seen)
	switch {
	case t.Target == 0 && (!t.Placed || t.Aim.Hash == ""):
		return done("no pod is asked for yet")
	case t.Placed && !seen.has(minReadyGate) && t.Aim.Hash != "":
		gated := blueGreenFields(surgeOf(t, max(surge, t.Target, 1)), seen)
		return set("restore the gate, which another client removed", t.write("gate", seen.settingsToWrite(gated...)))
	case !t.Placed, !seen.has(minReadyGate), surge < t.Target:
		w := t.write("grow", seen.settingsToWrite(blueGreenFields(surgeOf(t, max(t.Target, 1)), seen)...))
		return set(fmt.Sprintf("bring up %d new pods next to the others", t.Target), w)
	case paused(seen):
		return set("resume it: another client paused it",
			t.write("resume", seen.settingsToWrite(blueGreenFields(surgeOf(t, surge), seen)...)))
	}
	return done("")
}

// blueGreenFields returns the settings while a blue-green's pods move. They undo a pause by another client, since a
// paused Deployment starts no pod.
func blueGreenFields(surge intstr.IntOrString, seen Observed) []workload.Setting {
	settings := append(movingFields(0, 0, seen), workload.Setting{Path: pathPaused,
		Value: seen.savedSetting(pathPaused)})
	settings[0].Value = rollingShare(intstr.FromInt32(0), surge)
	return settings
}

// original returns a Deployment's own limits, with Kubernetes' defaults for missing ones and for type Recreate.
func (deploymentBlueGreen) original(saved rollout.Saved) rollout.OriginalStrategy {
	own, deadline := rollingUpdateOf(saved.Settings[pathStrategy]), savedNumber(saved, pathProgressDeadline, 600)
	if recreates(saved.Settings[pathStrategy]) {
		own = rollingUpdateOf(json.RawMessage(`{"rollingUpdate":{}}`))
	}
	return rollout.OriginalStrategy{MaxUnavailable: own.MaxUnavailable, MaxSurge: own.MaxSurge,
		MinReadySeconds: savedNumber(saved, pathMinReadySeconds, 0), ProgressDeadlineSeconds: &deadline}
}

// savedNumber returns the number that a field had, or the default if it was absent.
func savedNumber(saved rollout.Saved, path string, number int32) int32 {
	_ = json.Unmarshal(saved.Settings[path], &number) // the API server has checked it
	return number
}
