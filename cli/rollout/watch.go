package rollout

import (
	"context"
	"fmt"
	"net/http"
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

const exitCodes = `  0    Healthy: the new version serves
  1    Failed, or the command itself failed
  2    wrong usage
  3    RolledBack or Cancelled
  4    the party's cluster is out of reach, with --exit-on-interrupted
  5    it waits for a person (approval, drift, resume), with --exit-on-paused
  124  --timeout passed
  130  ended by Ctrl-C; the rollout goes on`

var words = follow.Words{Noun: "rollout", End: "to its end", Interrupted: "the party's cluster is out of reach",
	Paused: "it waits for a person", Failed: "somebody may retry it or roll it back"}

// over says whether nothing of the rollout will change any more.
func over(s rollout.Status) bool {
	return s.Phase.Final() || (s.Phase == rollout.PhaseFailed && s.FinishedAt != nil)
}

// waitsForPerson says whether nothing happens until somebody decides.
func waitsForPerson(s rollout.Status) bool {
	return s.WaitingFor != nil && slices.Contains([]rollout.WaitKind{rollout.WaitApproval, rollout.WaitDrift, rollout.WaitResume},
		s.WaitingFor.Kind)
}

// ends says with which exit code the watch ends in this state of the rollout; ok is false while it goes on.
func ends(o follow.Options, s rollout.Status) (code int, ok bool) {
	switch {
	case s.Phase == rollout.PhaseHealthy && over(s):
		return app.ExitOK, true
	case s.Phase == rollout.PhaseFailed && (over(s) || waitsForPerson(s) && !o.ThroughFailure):
		return app.ExitFailure, true
	case over(s):
		return app.ExitStopped, true
	case o.ExitOnInterrupted && s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitParty:
		return app.ExitInterrupted, true
	case o.ExitOnPaused && waitsForPerson(s):
		return app.ExitPaused, true
	}
	return 0, false
}

func watchCommand(n *rollouts) *cobra.Command {
	command := n.WatchCommand(`Follow a rollout to its end. A terminal shows steps, split and what it waits for as they
change; a pipe gets one line for each
change, and -o json or yaml the whole rollout at each change. A lost connection is opened again, however long that takes.

A rollout that waits for a person has this command wait as well, unless told otherwise. The exit code says how it ended:

`+exitCodes, words, func(ctx context.Context, api *client.Client, key string, o follow.Options) error {
		return watchOne(ctx, n.App, api, nameOf(n.Place.Party, key), o)
	})
	command.Example = `  slipway rollout watch shop/web
  slipway rollout watch web -n shop --timeout 2h --exit-on-paused`
	return command
}

func watched(api *client.Client, name app.Name) follow.Watched[rollout.Status] {
	return follow.Watched[rollout.Status]{
		Called: "rollout " + name.String(), Again: "slipway rollout watch " + name.Arguments(),
		Read: func(ctx context.Context) (rollout.Status, error) {
			answer, err := readOne(ctx, api, name)
			return answer.Value, err
		},
		Open: func(ctx context.Context, last *string) (*http.Response, error) {
			return api.WatchRollout(ctx, name.Namespace, name.Name, &client.WatchRolloutParams{Party: name.PartyParam(), LastEventID: last})
		},
		Over:     over,
		Portrait: follow.Portrait[rollout.Status]{Fit: Fit, Changes: Changes, Epilogue: Epilogue},
	}
}

func watchOne(ctx context.Context, a *app.App, api *client.Client, name app.Name, o follow.Options) error {
	w := watched(api, name)
	w.Ends, w.Timeout = func(s rollout.Status) (int, bool) { return ends(o, s) }, o.Timeout
	return follow.Watch(ctx, a, w)
}

type waitGoal string

const (
	goalHealthy  waitGoal = "healthy"
	goalPaused   waitGoal = "paused"
	goalFinished waitGoal = "finished"
)

var waitGoals = []waitGoal{goalHealthy, goalPaused, goalFinished}

// ends says with which exit code the wait ends in this state; ok is false while it goes on. A failed rollout waits for a person too, and
// one that goes back may stop on its way; neither is the pause of a release that a pipeline may go on with.
func (g waitGoal) ends(s rollout.Status) (code int, ok bool) {
	switch {
	case g == goalFinished:
		return app.ExitOK, over(s)
	case s.Phase == rollout.PhaseFailed && (over(s) || waitsForPerson(s)):
		return app.ExitFailed, true
	case over(s) && (g == goalPaused || s.Phase != rollout.PhaseHealthy):
		return app.ExitStopped, true // it is over and will not wait for anybody, or not become healthy
	case over(s):
		return app.ExitOK, true
	case g == goalPaused && waitsForPerson(s):
		return app.ExitOK, true
	}
	return 0, false
}

func waitCommand(n *rollouts) *cobra.Command {
	var goal []string
	var timeout time.Duration
	var goals *[]waitGoal
	command := &cobra.Command{
		Use:   "wait NAME --for healthy|paused|finished",
		Short: "Wait until a rollout is healthy, waits for a person, or is over",
		Long: `Wait until a rollout is where a pipeline wants it, without a word until then:

  healthy   the new version serves (default)
  paused    it waits for a person: an approval, a decision after somebody's edit, a resume;
            a failed rollout is not paused
  finished  it is over, whatever the end

The exit code is 0 when it got there, and otherwise:

  1    the command itself failed
  2    wrong usage
  3    RolledBack or Cancelled, or Healthy where a pause was waited for
  6    Failed
  124  --timeout passed; the rollout goes on
  130  ended by Ctrl-C; the rollout goes on`,
		Example: `  slipway rollout wait shop/web --for paused --timeout 30m && ./smoke-test && slipway rollout approve shop/web --yes`,
	}
	check := func() (err error) {
		if goals, err = app.ParseOneOf("for", goal, waitGoals); err == nil && len(*goals) != 1 {
			err = app.Usagef("--for takes one of %s", strictyaml.List(waitGoals))
		}
		return err
	}
	n.ReadingOne(command, check, func(c *cobra.Command, api *client.Client, key string) error {
		w := watched(api, nameOf(n.Place.Party, key))
		w.Ends, w.Timeout, w.Silent = (*goals)[0].ends, timeout, true
		return follow.Watch(c.Context(), n.App, w)
	})
	command.Flags().StringSliceVar(&goal, "for", []string{string(goalHealthy)}, "what to wait for: `goal` "+strictyaml.List(waitGoals))
	command.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait at most, such as 30m. 0: as long as it takes")
	app.FlagChoices(command, "for", waitGoals...)
	return command
}

// Changes tell how a rollout came from one state to the next, in the order of time.
func Changes(before, now rollout.Status, look time.Time) []follow.Change {
	var lines follow.Changes
	lines.Decisions(now.History[min(len(before.History), len(now.History)):], look)
	tellSteps(&lines, before, now)
	if before.CanaryReplicas != now.CanaryReplicas || before.CanaryReadyReplicas != now.CanaryReadyReplicas {
		lines.Tell(look, "  pods: %s", podsInWords(now))
	}
	if now.Traffic != nil && trafficInWords(before) != trafficInWords(now) {
		lines.Tell(look, "  traffic: %s", trafficInWords(now))
	}
	if before.Phase != now.Phase || before.Reason != now.Reason {
		at := look
		if now.Phase.Final() {
			at = render.TimeOr(now.FinishedAt, look)
		}
		lines.Tell(at, "rollout %s is %s%s", keyOf(now), now.Phase, render.Because(now.Reason))
	}
	// A wait that a person can end, and how. The other waits are in the rollout's reason.
	old, wait := before.WaitingFor, now.WaitingFor
	if wait != nil && (old == nil || old.Kind != wait.Kind || old.Gate != wait.Gate) {
		for _, h := range Hints(now) {
			lines.Tell(look, "  to %s: %s", h.Effect, h.Command)
		}
	}
	return lines.InOrder()
}

func tellSteps(lines *follow.Changes, before, now rollout.Status) {
	isNew := func(old, at *time.Time) bool { return at != nil && (old == nil || !old.Equal(*at)) }
	for n, step := range now.Steps {
		old := rollout.StepStatus{}
		if n < len(before.Steps) {
			old = before.Steps[n]
		}
		if isNew(old.StartedAt, step.StartedAt) {
			cells := slices.DeleteFunc(stepCells(step)[1:], func(cell string) bool { return cell == "" })
			lines.Tell(*step.StartedAt, "step %d of %d begins: %s", step.Index, len(now.Steps), strings.Join(cells, ", "))
		}
		if isNew(old.FinishedAt, step.FinishedAt) {
			lines.Tell(*step.FinishedAt, "step %d of %d: %s%s", step.Index, len(now.Steps), render.OneLine(step.State),
				render.After(step.StartedAt, step.FinishedAt))
		}
	}
}

// Epilogue is the last word on a rollout, and what to do next.
func Epilogue(s rollout.Status) string {
	text := fmt.Sprintf("rollout %s is %s%s%s", keyOf(s), s.Phase, render.After(&s.CreatedAt, s.FinishedAt), render.Because(s.Reason))
	for _, h := range Hints(s) {
		text += fmt.Sprintf("\nTo %s: %s", h.Effect, h.Command)
	}
	if s.Frozen {
		text += "\nThe split holds; to bring it home: slipway rollout rollback " + nameIn(s).Arguments()
	}
	return text
}

// Hints lists the commands that are of use now, the most likely one first.
func Hints(s rollout.Status) []render.Hint {
	say := func(verb, effect string) render.Hint {
		return render.Hint{Command: "slipway rollout " + verb + " " + nameIn(s).Arguments(), Effect: effect}
	}
	back := say("rollback", "go back to the stable version")
	switch {
	case s.WaitingFor == nil:
		return nil
	case s.WaitingFor.Kind == rollout.WaitApproval:
		return []render.Hint{say("approve", "go on"), back}
	case s.WaitingFor.Kind == rollout.WaitWindow:
		return []render.Hint{say("approve", "begin now; it needs a --reason"), back}
	case s.WaitingFor.Kind == rollout.WaitDrift:
		return []render.Hint{say("retry", "put ours back and go on"), say("stop", "end it")}
	case s.WaitingFor.Kind == rollout.WaitResume && s.Phase == rollout.PhaseFailed:
		return []render.Hint{say("retry", "try the step again"), back, say("stop", "end it; --to new and --to frozen end it elsewhere")}
	case s.WaitingFor.Kind == rollout.WaitResume:
		return []render.Hint{say("resume", "go on"), back}
	}
	return nil
}
