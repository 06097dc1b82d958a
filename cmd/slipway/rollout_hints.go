package main

import (
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
)

// hint is a command that a person can give now, and what it does.
type hint struct{ command, effect string }

// whatToDo lists the commands that are of use now, the most likely one first.
func whatToDo(s rollout.Status) []hint {
	say := func(verb, effect string) hint {
		return hint{command: "slipway rollout " + verb + " " + nameArguments(s.Party, s.Namespace, s.Name), effect: effect}
	}
	back := say("rollback", "go back to the stable version")
	switch {
	case s.WaitingFor == nil:
		return nil
	case s.WaitingFor.Kind == rollout.WaitApproval:
		return []hint{say("approve", "go on"), back}
	case s.WaitingFor.Kind == rollout.WaitDrift:
		return []hint{say("retry", "put ours back and go on"), say("stop", "end it")}
	case s.WaitingFor.Kind == rollout.WaitResume && s.Phase == rollout.PhaseFailed:
		return []hint{say("retry", "try the step again"), back, say("stop", "end it; --to new and --to frozen end it elsewhere")}
	case s.WaitingFor.Kind == rollout.WaitResume:
		return []hint{say("resume", "go on"), back}
	}
	return nil
}

// nameArguments are the arguments that name a rollout on a command line.
func nameArguments(party, namespace, name string) string {
	text := name
	if namespace != defaultNamespace {
		text += " -n " + namespace
	}
	if party != "" && party != catalog.DefaultParty {
		text += " --party " + party
	}
	return oneLine(text)
}
