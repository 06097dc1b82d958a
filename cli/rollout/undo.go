package rollout

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
)

func undoCommand(n *rollouts) *cobra.Command {
	a := n.App
	var who app.ActorFlags
	var options follow.Options
	var body client.RolloutUndoRequest
	command := &cobra.Command{
		Use:   "undo " + n.Argument,
		Short: "Go back to an earlier version after a release has ended",
		Long: `Go back to an earlier version after a release has ended. The undo uses the strategy of the last release, and
the pod template of the version before it or of --to-revision. "slipway rollout history" shows the revisions.
policy.rollbackWindow sets for how many versions back an undo skips the steps. While a release is running, use "slipway
rollout rollback".

With --watch, the command watches the release until it ends, and the exit code is the outcome:

` + exitCodes,
		Example: `  slipway rollout undo shop/web --reason "the error rate is up" --watch
  slipway rollout undo shop/web --to-revision 3`,
	}
	check := func() error {
		if command.Flags().Changed("to-revision") && body.ToRevision < 1 {
			return app.Usagef("--to-revision must be 1 or greater")
		}
		return options.Check(command)
	}
	n.InitWriteCommand(command, check, func(c *cobra.Command, api *client.Client, key string) error {
		who.SetDefaults()
		body.Actor, body.Reason, body.Key = who.Actor, who.Reason, who.Key
		name := nameOf(n.Scope.Party, key)
		started, err := undoOne(c.Context(), a, api, name, body)
		if err != nil {
			return err
		}
		return reportStarted(c.Context(), a, api, started, fmt.Sprintf("undo of rollout %s started", name), options)
	})
	who.Flags(command, "idempotency `key`, unique to this undo, such as a CI pipeline ID")
	command.Flags().IntVar(&body.ToRevision, "to-revision", 0,
		"`number` of the version in the history (default: the version before the last release)")
	options.StartFlags(command, watchHelp)
	return command
}

// undoOne starts the undo. If the response is lost, it prints how to retry without starting another one.
func undoOne(ctx context.Context, a *app.App, api *client.Client, name app.ObjectName,
	body client.RolloutUndoRequest) (apiclient.Reply[client.RolloutStarted], error) {
	started, err := apiclient.Read[client.RolloutStarted](api.UndoRollout(ctx, name.Namespace, name.Name,
		&client.UndoRolloutParams{Party: name.PartyParam(), IdempotencyKey: &body.Key}, body))
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "It is unknown whether the undo was started. It is safe to repeat the command with --key %s.\n",
			body.Key)
	}
	return started, err
}
