package rollout

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/release/rollout"
)

const exitCodes = `  0    Healthy: the new version serves
  1    Failed, or the command itself failed
  2    wrong usage
  3    RolledBack or Cancelled
  4    the party's cluster is out of reach, with --exit-on-interrupted
  5    it waits for a person (approval, drift, resume), with --exit-on-paused
  124  --timeout passed
  130  ended by Ctrl-C; the rollout goes on`

// watchOptions says when a watch ends before the rollout does.
type watchOptions struct {
	timeout           time.Duration
	exitOnInterrupted bool
	exitOnPaused      bool
	throughFailure    bool
}

func (o *watchOptions) flags(command *cobra.Command) {
	f := command.Flags()
	f.DurationVar(&o.timeout, "timeout", 0, "how long to follow at most, such as 30m; the rollout goes on. 0: to its end")
	f.BoolVar(&o.exitOnInterrupted, "exit-on-interrupted", false, "end with exit code 4 when the party's cluster is out of reach")
	f.BoolVar(&o.exitOnPaused, "exit-on-paused", false, "end with exit code 5 when it waits for a person")
	f.BoolVar(&o.throughFailure, "through-failure", false, "go on when it has Failed: somebody may retry it or roll it back")
}

// given names one of the options that was given; empty: none was.
func (o *watchOptions) given(command *cobra.Command) string {
	name := ""
	command.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "timeout", "exit-on-interrupted", "exit-on-paused", "through-failure":
			name = f.Name
		}
	})
	return name
}

// over says whether nothing of the rollout will change any more.
func over(s rollout.Status) bool {
	return s.Phase.Final() || (s.Phase == rollout.PhaseFailed && s.FinishedAt != nil)
}

// waitsForPerson says whether nothing happens until somebody decides.
func waitsForPerson(s rollout.Status) bool {
	if s.WaitingFor == nil {
		return false
	}
	switch s.WaitingFor.Kind {
	case rollout.WaitApproval, rollout.WaitDrift, rollout.WaitResume:
		return true
	}
	return false
}

// endCode is the exit code of a rollout that is over, or has failed.
func endCode(s rollout.Status) int {
	switch s.Phase {
	case rollout.PhaseHealthy:
		return app.ExitOK
	case rollout.PhaseFailed:
		return app.ExitFailure
	}
	return app.ExitStopped
}

// ends says with which exit code the watch ends in this state of the rollout; ok is false while it goes on.
func (o *watchOptions) ends(s rollout.Status) (code int, ok bool) {
	switch {
	case over(s):
		return endCode(s), true
	case s.Phase == rollout.PhaseFailed && waitsForPerson(s) && !o.throughFailure:
		return app.ExitFailure, true
	case o.exitOnInterrupted && s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitParty:
		return app.ExitInterrupted, true
	case o.exitOnPaused && waitsForPerson(s):
		return app.ExitPaused, true
	}
	return 0, false
}

func watchCommand(a *app.App) *cobra.Command {
	var output string
	var where app.Place
	var options watchOptions
	command := &cobra.Command{
		Use:   "watch NAME",
		Short: "Follow a rollout to its end",
		Long: `Follow a rollout to its end. A terminal shows steps, split and what it waits for as they change; a pipe gets one line for each
change, and -o json or yaml the whole rollout at each change. A lost connection is opened again, however long that takes.

A rollout that waits for a person has this command wait as well, unless told otherwise. The exit code says how it ended:

` + exitCodes,
		Example: `  slipway rollout watch shop/web
  slipway rollout watch web -n shop --timeout 2h --exit-on-paused`,
		Args:              app.OneName("a rollout"),
		ValidArgsFunction: complete(a, &where),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := where.Named(args[0])
			if err != nil {
				return err
			}
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			return watchOne(c.Context(), a, api, name, options, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	where.Flags(command)
	options.flags(command)
	return command
}

// watched says how a rollout is followed.
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

func watchOne(ctx context.Context, a *app.App, api *client.Client, name app.Name, options watchOptions, output string) error {
	w := watched(api, name)
	w.Ends, w.Timeout = options.ends, options.timeout
	return follow.Watch(ctx, a, w, output)
}
