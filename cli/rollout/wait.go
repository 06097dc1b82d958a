package rollout

import (
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/release/rollout"
)

// waitGoal is what `rollout wait` can wait for.
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

func waitCommand(a *app.App) *cobra.Command {
	var output string
	var where app.Place
	var goal []string
	var timeout time.Duration
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
		Example:           `  slipway rollout wait shop/web --for paused --timeout 30m && ./smoke-test && slipway rollout approve shop/web --yes`,
		Args:              app.OneName("a rollout"),
		ValidArgsFunction: complete(a, &where),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := where.Named(args[0])
			if err != nil {
				return err
			}
			goals, err := app.ParseOneOf("for", goal, waitGoals)
			if err != nil {
				return err
			}
			if len(*goals) != 1 {
				return app.Usagef("--for takes one of %s", app.Joined(waitGoals))
			}
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			w := watched(api, name)
			w.Ends, w.Timeout, w.Silent = (*goals)[0].ends, timeout, true
			return follow.Watch(c.Context(), a, w, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	where.Flags(command)
	command.Flags().StringSliceVar(&goal, "for", []string{string(goalHealthy)}, "what to wait for: `goal` "+app.Joined(waitGoals))
	command.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait at most, such as 30m. 0: as long as it takes")
	goals := []string{string(goalHealthy), string(goalPaused), string(goalFinished)}
	_ = command.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(goals, cobra.ShellCompDirectiveNoFileComp))
	return command
}
