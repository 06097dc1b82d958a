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
	var who app.Who
	var options follow.Options
	var body client.RolloutUndoRequest
	command := &cobra.Command{
		Use:   "undo " + n.Argument,
		Short: "Go back to an earlier version, after the end of a release",
		Long: `Go back to an earlier version, after the end of a release: with the strategy of the last release, and the pod template of the version
that served before it, or of --to-revision. "slipway rollout history" shows the numbers. policy.rollbackWindow says how
many versions back an undo goes without steps. While a release is under way, use "slipway rollout rollback".

With --watch the release is followed to its end, and the exit code says how it ended:

` + exitCodes,
		Example: `  slipway rollout undo shop/web --reason "the error rate is up" --watch
  slipway rollout undo shop/web --to-revision 3`,
	}
	check := func() error {
		if command.Flags().Changed("to-revision") && body.ToRevision < 1 {
			return app.Usagef("--to-revision says which version of the history to go back to, from 1")
		}
		return options.Check(command)
	}
	n.WritingOne(command, check, func(c *cobra.Command, api *client.Client, key string) error {
		who.Complete()
		body.Actor, body.Reason, body.Key = who.Actor, who.Reason, who.Key
		name := nameOf(n.Place.Party, key)
		started, err := undoOne(c.Context(), a, api, name, body)
		if err != nil {
			return err
		}
		return begun(c.Context(), a, api, started, fmt.Sprintf("the undo of rollout %s has begun", name), options)
	})
	who.Flags(command, "any `text` that is unique to this undo, such as a pipeline's number")
	command.Flags().IntVar(&body.ToRevision, "to-revision", 0, "the `number` of the version in the history (default: the one before the last release)")
	options.StartFlags(command, words)
	return command
}

// undoOne starts it. When nobody can say whether it was started, the error says how to ask again without starting another.
func undoOne(ctx context.Context, a *app.App, api *client.Client, name app.Name, body client.RolloutUndoRequest) (apiclient.Reply[client.RolloutStarted], error) {
	started, err := apiclient.Read[client.RolloutStarted](api.UndoRollout(ctx, name.Namespace, name.Name,
		&client.UndoRolloutParams{Party: name.PartyParam(), IdempotencyKey: &body.Key}, body))
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "Whether the undo was started is not known. The same command with --key %s starts it once.\n", body.Key)
	}
	return started, err
}
