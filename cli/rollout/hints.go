package rollout

import (
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/rollout"
)

// WhatToDo lists the commands that are of use now, the most likely one first.
func WhatToDo(s rollout.Status) []render.Hint {
	say := func(verb, effect string) render.Hint {
		return render.Hint{Command: "slipway rollout " + verb + " " + app.Arguments(s.Party, s.Namespace, s.Name), Effect: effect}
	}
	back := say("rollback", "go back to the stable version")
	switch {
	case s.WaitingFor == nil:
		return nil
	case s.WaitingFor.Kind == rollout.WaitApproval:
		return []render.Hint{say("approve", "go on"), back}
	case s.WaitingFor.Kind == rollout.WaitDrift:
		return []render.Hint{say("retry", "put ours back and go on"), say("stop", "end it")}
	case s.WaitingFor.Kind == rollout.WaitResume && s.Phase == rollout.PhaseFailed:
		return []render.Hint{say("retry", "try the step again"), back, say("stop", "end it; --to new and --to frozen end it elsewhere")}
	case s.WaitingFor.Kind == rollout.WaitResume:
		return []render.Hint{say("resume", "go on"), back}
	}
	return nil
}
