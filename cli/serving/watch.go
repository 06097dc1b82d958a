package serving

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

const exitCodes = `  0    Available: every party runs what was asked, with all replicas
  1    Failed, or refused, or the command itself failed
  2    wrong usage
  3    the update failed and was taken back: the version before it serves
  4    a party is out of reach, with --exit-on-interrupted
  5    it waits for a person (approval, resume), with --exit-on-paused
  124  --timeout passed
  130  ended by Ctrl-C; the serving goes on`

// watchOptions says when a watch ends before the serving is as it should be.
type watchOptions struct {
	timeout           time.Duration
	exitOnInterrupted bool
	exitOnPaused      bool
}

func (o *watchOptions) flags(command *cobra.Command) {
	command.Flags().DurationVar(&o.timeout, "timeout", 0, "how long to follow at most, such as 30m; the serving goes on. 0: until it is Available or Failed")
	command.Flags().BoolVar(&o.exitOnInterrupted, "exit-on-interrupted", false, "end with exit code 4 when a party is out of reach")
	command.Flags().BoolVar(&o.exitOnPaused, "exit-on-paused", false, "end with exit code 5 when it waits for a person")
}

// given names one of the options that was given; empty: none was.
func (o *watchOptions) given(command *cobra.Command) (name string) {
	command.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "timeout" || f.Name == "exit-on-interrupted" || f.Name == "exit-on-paused" {
			name = f.Name
		}
	})
	return name
}

// ends says with which exit code the watch ends in this state of the serving; ok is false while it goes on. What is under way may still change
// everything, but for a way back that fails: it is tried again, and nobody should wait for it.
func (o *watchOptions) ends(v serving.View) (code int, ok bool) {
	op := v.Operation
	switch {
	case o.exitOnInterrupted && slices.ContainsFunc(v.Parties, func(p serving.PartyView) bool { return p.Away != "" }):
		return app.ExitInterrupted, true
	case v.DeletedAt != nil, op == nil, op.Generation < v.Generation:
		return 0, false
	case v.Phase == kuscia.PhaseFailed:
		return app.ExitFailure, true
	case o.exitOnPaused && op.WaitingFor != nil:
		return app.ExitPaused, true
	case !op.Done:
		return 0, false
	case v.Reason == serving.ReasonUpdateRolledBack:
		return app.ExitStopped, true
	case operationFailed(v):
		return app.ExitFailure, true
	}
	return app.ExitOK, v.Phase == kuscia.PhaseAvailable
}

// operationFailed says that the last operation has failed, and that this was not put right since.
func operationFailed(v serving.View) bool {
	op := v.Operation
	return op != nil && op.Done && op.Reason != "" && v.Reason != ""
}

func watchCommand(a *app.App) *cobra.Command {
	var output string
	var options watchOptions
	command := &cobra.Command{
		Use:   "watch ID",
		Short: "Follow a serving until it is Available or has Failed",
		Long: `Follow a serving until it is Available or has Failed. A terminal shows the parties as they change; a pipe gets one line for each change,
and -o json or yaml the whole serving at each change. A lost connection is opened again, however long that takes.

A party that is away, or a person who is to approve, is waited for, unless told otherwise. A serving that is being deleted is followed until it is gone. The exit code says how
it ended:

` + exitCodes,
		Example: `  slipway serving watch serving-01
  slipway serving watch serving-01 --timeout 15m --exit-on-interrupted`,
		Args:              app.ExactName("a serving", "ID"),
		ValidArgsFunction: a.Complete(ids),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			return watchOne(c.Context(), a, api, args[0], options, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	options.flags(command)
	return command
}

func watchOne(ctx context.Context, a *app.App, api *client.Client, id string, options watchOptions, output string) error {
	deleted := false
	err := follow.Watch(ctx, a, follow.Watched[serving.View]{
		Called: "serving " + id, Again: "slipway serving watch " + id,
		Read: func(ctx context.Context) (serving.View, error) { return readOne(ctx, api, id) },
		Open: func(ctx context.Context, last *string) (*http.Response, error) {
			return api.WatchServing(ctx, id, &client.WatchServingParams{LastEventID: last})
		},
		// A serving has no end of its own: somebody may change it at any time.
		Over: func(serving.View) bool { return false },
		Ends: func(v serving.View) (int, bool) {
			deleted = v.DeletedAt != nil
			return options.ends(v)
		},
		Timeout:  options.timeout,
		Portrait: follow.Portrait[serving.View]{Fit: Fit, Changes: changes, Epilogue: epilogue},
	}, output)
	var problem *apiclient.ProblemError
	if deleted && errors.As(err, &problem) && problem.Status == http.StatusNotFound {
		a.Printf(a.Err, "serving %s is gone\n", id)
		return nil
	}
	return err
}
