package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/strictyaml"
)

const exitCodes = `  0    Healthy: the new version is serving
  1    Failed, or the command itself failed
  2    wrong usage
  3    RolledBack or Cancelled
  4    the party's cluster is unreachable, with --exit-on-interrupted
  5    it waits for user action (approval, drift, resume), with --exit-on-paused
  124  --timeout passed
  130  interrupted by Ctrl-C; the rollout continues`

var watchHelp = follow.FlagTexts{Noun: "rollout", Until: "until it ends",
	Interrupted: "the party's cluster is unreachable",
	Paused:      "it waits for user action", Failed: "a user may retry it or roll it back"}

// ended reports whether the rollout has ended, so that its state no longer changes.
func ended(s rollout.Status) bool {
	return s.Phase.Final() || (s.Phase == rollout.PhaseFailed && s.FinishedAt != nil)
}

// needsUserAction reports whether the rollout continues only after a user's decision.
func needsUserAction(s rollout.Status) bool {
	return s.WaitingFor != nil && slices.Contains([]rollout.WaitKind{rollout.WaitApproval, rollout.WaitDrift,
		rollout.WaitResume}, s.WaitingFor.Kind)
}

// exitCodeOf returns the exit code of the watch in this state of the rollout; ok is false while the watch continues.
func exitCodeOf(o follow.Options, s rollout.Status) (code int, ok bool) {
	switch {
	case s.Phase == rollout.PhaseHealthy && ended(s):
		return app.ExitOK, true
	case s.Phase == rollout.PhaseFailed && (ended(s) || needsUserAction(s) && !o.ThroughFailure):
		return app.ExitFailure, true
	case ended(s):
		return app.ExitStopped, true
	case o.ExitOnInterrupted && s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitParty:
		return app.ExitInterrupted, true
	case o.ExitOnPaused && needsUserAction(s):
		return app.ExitPaused, true
	}
	return 0, false
}

type waitGoal string

const (
	goalHealthy  waitGoal = "healthy"
	goalPaused   waitGoal = "paused"
	goalFinished waitGoal = "finished"
)

var waitGoals = []waitGoal{goalHealthy, goalPaused, goalFinished}

// exitCodeOf returns the exit code of the wait in this state; ok is false while the wait continues. A failed rollout
// and one that is rolling back do not count as paused: a pipeline waits for a pause after which the release can
// continue.
func (g waitGoal) exitCodeOf(s rollout.Status) (code int, ok bool) {
	switch {
	case g == goalFinished:
		return app.ExitOK, ended(s)
	case s.Phase == rollout.PhaseFailed && (ended(s) || needsUserAction(s)):
		return app.ExitFailed, true
	case ended(s) && (g == goalPaused || s.Phase != rollout.PhaseHealthy):
		return app.ExitStopped, true // it has ended, so it will neither pause nor become healthy
	case ended(s):
		return app.ExitOK, true
	case g == goalPaused && needsUserAction(s):
		return app.ExitOK, true
	}
	return 0, false
}

func waitCommand(n *rollouts) *cobra.Command {
	var goal []string
	var timeout time.Duration
	var goals []string
	command := &cobra.Command{
		Use:   "wait NAME --for healthy|paused|finished",
		Short: "Wait until a rollout is healthy, paused or finished",
		Long: `Wait silently until a rollout has reached a state:

  healthy   the new version is serving (default)
  paused    it waits for user action: approval, a decision about drift, or resume;
            a failed rollout is not paused
  finished  it has ended, with any outcome

The exit code is 0 if it reached the state, and otherwise:

  1    the command itself failed
  2    wrong usage
  3    RolledBack or Cancelled, or Healthy with --for paused
  6    Failed
  124  --timeout passed; the rollout continues
  130  interrupted by Ctrl-C; the rollout continues`,
		Example: `  slipway rollout wait shop/web --for paused --timeout 30m && ./smoke-test &&
    slipway rollout approve shop/web --yes`,
	}
	check := func() (err error) {
		if goals, err = app.ParseOneOf("for", goal, waitGoals); err == nil && len(goals) != 1 {
			err = app.Usagef("--for must be one of %s", strictyaml.List(waitGoals))
		}
		return err
	}
	n.InitCommand(command, app.Connect, check, func(c *cobra.Command, api *client.Client, key string) error {
		w := n.Watched(api, key, follow.Options{Timeout: timeout})
		w.ExitCode, w.Silent = waitGoal(goals[0]).exitCodeOf, true
		return follow.Watch(c.Context(), n.App, w)
	})
	command.Flags().StringSliceVar(&goal, "for", []string{string(goalHealthy)},
		"the `state` to wait for: "+strictyaml.List(waitGoals))
	app.DurationFlag(command, &timeout, "timeout", 0, "maximum time to wait, such as 30m; 0 waits forever")
	app.FlagChoices(command, "for", waitGoals...)
	return command
}

// Changes returns the differences between two states of a rollout, a line each, sorted by time.
func Changes(before, now rollout.Status, look time.Time) []follow.Change {
	var lines follow.Changes
	lines.AddDecisions(follow.NewDecisions(before.History, now.History), look)
	addStepChanges(&lines, before, now)
	if before.CanaryReplicas != now.CanaryReplicas || before.CanaryReadyReplicas != now.CanaryReadyReplicas {
		lines.Add(look, "  pods: %s", podsText(now))
	}
	if now.Traffic != nil && trafficText(before) != trafficText(now) {
		lines.Add(look, "  traffic: %s", trafficText(now))
	}
	if before.Phase != now.Phase || before.Reason != now.Reason {
		at := look
		if now.Phase.Final() {
			at = render.TimeOrDefault(now.FinishedAt, look)
		}
		lines.Add(at, "rollout %s is %s%s", keyOf(now), now.Phase, render.ReasonSuffix(now.Reason))
	}
	// A wait that the user can end, with the commands. The rollout's reason covers the other waits.
	old, wait := before.WaitingFor, now.WaitingFor
	if wait != nil && (old == nil || old.Kind != wait.Kind || old.Gate != wait.Gate) {
		for _, h := range Hints(now) {
			lines.Add(look, "  to %s: %s", h.Effect, h.Command)
		}
	}
	return lines.Sorted()
}

func addStepChanges(lines *follow.Changes, before, now rollout.Status) {
	isNew := func(old, at *time.Time) bool { return at != nil && (old == nil || !old.Equal(*at)) }
	for n, step := range now.Steps {
		old := rollout.StepStatus{}
		if n < len(before.Steps) {
			old = before.Steps[n]
		}
		if isNew(old.StartedAt, step.StartedAt) {
			cells := slices.DeleteFunc(stepCells(step)[1:], func(cell string) bool { return cell == "" })
			lines.Add(*step.StartedAt, "step %d of %d started: %s", step.Index, len(now.Steps),
				strings.Join(cells, ", "))
		}
		if isNew(old.FinishedAt, step.FinishedAt) {
			lines.Add(*step.FinishedAt, "step %d of %d: %s%s", step.Index, len(now.Steps), render.OneLine(step.State),
				render.DurationSuffix(step.StartedAt, step.FinishedAt))
		}
	}
}

// Summary returns the outcome of a rollout and what to do next.
func Summary(s rollout.Status) string {
	text := fmt.Sprintf("rollout %s is %s%s%s", keyOf(s), s.Phase, render.DurationSuffix(&s.CreatedAt, s.FinishedAt),
		render.ReasonSuffix(s.Reason))
	for _, h := range Hints(s) {
		text += fmt.Sprintf("\nTo %s: %s", h.Effect, h.Command)
	}
	if s.Frozen {
		text += "\nPods and traffic remain split. To go back to the stable version: slipway rollout rollback " +
			nameIn(s).CommandArgs()
	}
	return text
}

// Hints returns the commands that are useful now, the most likely one first.
func Hints(s rollout.Status) []render.Hint {
	say := func(verb, effect string) render.Hint {
		return render.Hint{Command: "slipway rollout " + verb + " " + nameIn(s).CommandArgs(), Effect: effect}
	}
	back := say("rollback", "go back to the stable version")
	switch {
	case s.WaitingFor == nil:
		return nil
	case s.WaitingFor.Kind == rollout.WaitApproval:
		return []render.Hint{say("approve", "continue"), back}
	case s.WaitingFor.Kind == rollout.WaitWindow:
		return []render.Hint{say("approve", "start now (requires --reason)"), back}
	case s.WaitingFor.Kind == rollout.WaitDrift:
		return []render.Hint{say("retry", "restore the rollout's settings and continue"),
			say("stop", "end the rollout")}
	case s.WaitingFor.Kind == rollout.WaitResume && s.Phase == rollout.PhaseFailed:
		return []render.Hint{say("retry", "retry the step"), back, say("stop", "end it (see --to)")}
	case s.WaitingFor.Kind == rollout.WaitResume:
		return []render.Hint{say("resume", "continue"), back}
	}
	return nil
}
