package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.io/slipway/api/client"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

const servingExitCodes = `  0    Available: every party runs what was asked, with all replicas
  1    Failed, or refused, or the command itself failed
  2    wrong usage
  3    the update failed and was taken back: the version before it serves
  4    a party is out of reach, with --exit-on-interrupted
  5    it waits for a person (approval, resume), with --exit-on-paused
  124  --timeout passed
  130  ended by Ctrl-C; the serving goes on`

// servingWatch says when a watch ends before the serving is as it should be.
type servingWatch struct {
	timeout           time.Duration
	exitOnInterrupted bool
	exitOnPaused      bool
}

func (o *servingWatch) flags(command *cobra.Command) {
	command.Flags().DurationVar(&o.timeout, "timeout", 0, "how long to follow at most, such as 30m; the serving goes on. 0: until it is Available or Failed")
	command.Flags().BoolVar(&o.exitOnInterrupted, "exit-on-interrupted", false, "end with exit code 4 when a party is out of reach")
	command.Flags().BoolVar(&o.exitOnPaused, "exit-on-paused", false, "end with exit code 5 when it waits for a person")
}

// given names one of the options that was given; empty: none was.
func (o *servingWatch) given(command *cobra.Command) (name string) {
	command.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "timeout" || f.Name == "exit-on-interrupted" || f.Name == "exit-on-paused" {
			name = f.Name
		}
	})
	return name
}

// ends says with which exit code the watch ends in this state of the serving; ok is false while it goes on. What is under way may still change
// everything, but for a way back that fails: it is tried again, and nobody should wait for it.
func (o *servingWatch) ends(v serving.View) (code int, ok bool) {
	op := v.Operation
	switch {
	case o.exitOnInterrupted && slices.ContainsFunc(v.Parties, func(p serving.PartyView) bool { return p.Away != "" }):
		return exitInterrupted, true
	case v.DeletedAt != nil, op == nil, op.Generation < v.Generation:
		return 0, false
	case v.Phase == kuscia.PhaseFailed:
		return exitFailure, true
	case o.exitOnPaused && op.WaitingFor != nil:
		return exitPaused, true
	case !op.Done:
		return 0, false
	case v.Reason == serving.ReasonUpdateRolledBack:
		return exitStopped, true
	case operationFailed(v):
		return exitFailure, true
	}
	return exitOK, v.Phase == kuscia.PhaseAvailable
}

// operationFailed says that the last operation has failed, and that this was not put right since.
func operationFailed(v serving.View) bool {
	op := v.Operation
	return op != nil && op.Done && op.Reason != "" && v.Reason != ""
}

func (a *app) servingWatchCommand() *cobra.Command {
	var output string
	var options servingWatch
	command := &cobra.Command{
		Use:   "watch ID",
		Short: "Follow a serving until it is Available or has Failed",
		Long: `Follow a serving until it is Available or has Failed. A terminal shows the parties as they change; a pipe gets one line for each change,
and -o json or yaml the whole serving at each change. A lost connection is opened again, however long that takes.

A party that is away, or a person who is to approve, is waited for, unless told otherwise. A serving that is being deleted is followed until it is gone. The exit code says how
it ended:

` + servingExitCodes,
		Example: `  slipway serving watch serving-01
  slipway serving watch serving-01 --timeout 15m --exit-on-interrupted`,
		Args:              exactName("a serving", "ID"),
		ValidArgsFunction: a.complete(servingIDs),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			return a.watchServing(c.Context(), api, args[0], options, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	options.flags(command)
	return command
}

func (a *app) watchServing(ctx context.Context, api *client.Client, id string, options servingWatch, output string) error {
	deleted := false
	err := watch(ctx, a, watched[serving.View]{
		called: "serving " + id, again: "slipway serving watch " + id,
		read: func(ctx context.Context) (serving.View, error) { return readServing(ctx, api, id) },
		open: func(ctx context.Context, last *string) (*http.Response, error) {
			return api.WatchServing(ctx, id, &client.WatchServingParams{LastEventID: last})
		},
		// A serving has no end of its own: somebody may change it at any time.
		over: func(serving.View) bool { return false },
		ends: func(v serving.View) (int, bool) {
			deleted = v.DeletedAt != nil
			return options.ends(v)
		},
		timeout:  options.timeout,
		portrait: portrait[serving.View]{fit: drawing.fitServing, changes: servingChanges, epilogue: servingEpilogue},
	}, output)
	var problem *problemError
	if deleted && errors.As(err, &problem) && problem.Status == http.StatusNotFound {
		a.printf(a.err, "serving %s is gone\n", id)
		return nil
	}
	return err
}
