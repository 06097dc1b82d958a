package main

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/rollout"
)

const rolloutExitCodes = `  0    Healthy: the new version serves
  1    Failed, or the command itself failed
  2    wrong usage
  3    RolledBack or Cancelled
  4    the party's cluster is out of reach, with --exit-on-interrupted
  5    it waits for a person (approval, drift, resume), with --exit-on-paused
  124  --timeout passed
  130  ended by Ctrl-C; the rollout goes on`

// rolloutWatch says when a watch ends before the rollout does.
type rolloutWatch struct {
	timeout           time.Duration
	exitOnInterrupted bool
	exitOnPaused      bool
	throughFailure    bool
}

func (o *rolloutWatch) flags(command *cobra.Command) {
	f := command.Flags()
	f.DurationVar(&o.timeout, "timeout", 0, "how long to follow at most, such as 30m; the rollout goes on. 0: to its end")
	f.BoolVar(&o.exitOnInterrupted, "exit-on-interrupted", false, "end with exit code 4 when the party's cluster is out of reach")
	f.BoolVar(&o.exitOnPaused, "exit-on-paused", false, "end with exit code 5 when it waits for a person")
	f.BoolVar(&o.throughFailure, "through-failure", false, "go on when it has Failed: somebody may retry it or roll it back")
}

// given names one of the options that was given; empty: none was.
func (o *rolloutWatch) given(command *cobra.Command) string {
	name := ""
	command.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "timeout", "exit-on-interrupted", "exit-on-paused", "through-failure":
			name = f.Name
		}
	})
	return name
}

// rolloutOver says whether nothing of the rollout will change any more.
func rolloutOver(s rollout.Status) bool {
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
		return exitOK
	case rollout.PhaseFailed:
		return exitFailure
	}
	return exitStopped
}

// ends says with which exit code the watch ends in this state of the rollout; ok is false while it goes on.
func (o *rolloutWatch) ends(s rollout.Status) (code int, ok bool) {
	switch {
	case rolloutOver(s):
		return endCode(s), true
	case s.Phase == rollout.PhaseFailed && waitsForPerson(s) && !o.throughFailure:
		return exitFailure, true
	case o.exitOnInterrupted && s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitParty:
		return exitInterrupted, true
	case o.exitOnPaused && waitsForPerson(s):
		return exitPaused, true
	}
	return 0, false
}

func (a *app) rolloutWatchCommand() *cobra.Command {
	var output string
	var where place
	var options rolloutWatch
	command := &cobra.Command{
		Use:   "watch NAME",
		Short: "Follow a rollout to its end",
		Long: `Follow a rollout to its end. A terminal shows steps, split and what it waits for as they change; a pipe gets one line for each
change, and -o json or yaml the whole rollout at each change. A lost connection is opened again, however long that takes.

A rollout that waits for a person has this command wait as well, unless told otherwise. The exit code says how it ended:

` + rolloutExitCodes,
		Example: `  slipway rollout watch shop/web
  slipway rollout watch web -n shop --timeout 2h --exit-on-paused`,
		Args:              oneName("a rollout"),
		ValidArgsFunction: a.completeRollouts(&where),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := where.named(args[0])
			if err != nil {
				return err
			}
			api, err := connect(c)
			if err != nil {
				return err
			}
			return a.watchRollout(c.Context(), api, name, options, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	where.flags(command)
	options.flags(command)
	return command
}

// watchedRollout says how a rollout is followed.
func watchedRollout(api *client.Client, name rolloutName) watched[rollout.Status] {
	return watched[rollout.Status]{
		called: "rollout " + name.String(), again: "slipway rollout watch " + name.arguments(),
		read: func(ctx context.Context) (rollout.Status, error) {
			answer, err := readRollout(ctx, api, name)
			return answer.value, err
		},
		open: func(ctx context.Context, last *string) (*http.Response, error) {
			return api.WatchRollout(ctx, name.namespace, name.name, &client.WatchRolloutParams{Party: name.partyParam(), LastEventID: last})
		},
		over:     rolloutOver,
		portrait: portrait[rollout.Status]{fit: drawing.fitRollout, changes: rolloutChanges, epilogue: rolloutEpilogue},
	}
}

func (a *app) watchRollout(ctx context.Context, api *client.Client, name rolloutName, options rolloutWatch, output string) error {
	w := watchedRollout(api, name)
	w.ends, w.timeout = options.ends, options.timeout
	return watch(ctx, a, w, output)
}
