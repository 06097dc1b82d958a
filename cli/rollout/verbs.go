package rollout

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/rollout"
)

// verb says what one of the commands that steer a rollout does.
type verb struct {
	Verb        rollout.Verb
	short, long string
	// because is the reason that the example gives.
	because string
	// gated verbs read the rollout first, say what they are about, and send its step and gate back, so that a stale one is refused.
	gated bool
	call  func(ctx context.Context, api *client.Client, n app.Name, body client.RolloutVerbRequest) (*http.Response, error)
}

// gatedHelp is how approve and promote make sure that they mean the right step.
const gatedHelp = `The command shows the step and asks for a confirmation.
Without a terminal, give --step, --gate or --yes. If the rollout has moved on meanwhile, the engine refuses the command.`

// Verbs are the verbs in the order in which people need them.
var Verbs = []verb{
	{Verb: rollout.VerbApprove, short: "Approve the step that waits", because: "the error rate is fine", gated: true,
		long: "Approve the step that waits for a person, or cut a timed pause short. " + gatedHelp,
		call: func(ctx context.Context, api *client.Client, n app.Name, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.ApproveRollout(ctx, n.Namespace, n.Name, &client.ApproveRolloutParams{Party: n.PartyParam(), SlipwayVia: app.Via()}, body)
		}},
	{Verb: rollout.VerbPromote, short: "Finish without the waits that are left", because: "verified by hand", gated: true,
		long: "Go through the steps that are left without their pauses and approvals. " + gatedHelp,
		call: func(ctx context.Context, api *client.Client, n app.Name, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.PromoteRollout(ctx, n.Namespace, n.Name, &client.PromoteRolloutParams{Party: n.PartyParam(), SlipwayVia: app.Via()}, body)
		}},
	{Verb: rollout.VerbPause, short: "Pause a rollout", because: "wait for the database team",
		long: "Pause a rollout. A step that moves pods stops where it is: those that have moved stay, and no other moves until it is resumed.",
		call: func(ctx context.Context, api *client.Client, n app.Name, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.PauseRollout(ctx, n.Namespace, n.Name, &client.PauseRolloutParams{Party: n.PartyParam(), SlipwayVia: app.Via()}, body)
		}},
	{Verb: rollout.VerbResume, short: "Resume a paused rollout", because: "the database is ready",
		long: "Resume a rollout that was paused. It goes on where it was.",
		call: func(ctx context.Context, api *client.Client, n app.Name, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.ResumeRollout(ctx, n.Namespace, n.Name, &client.ResumeRolloutParams{Party: n.PartyParam(), SlipwayVia: app.Via()}, body)
		}},
	{Verb: rollout.VerbRollback, short: "Go back to the stable version", because: "the error rate is up",
		long: "Go back to the stable version: traffic first, then pods. It also brings home a rollout that was stopped to frozen.",
		call: func(ctx context.Context, api *client.Client, n app.Name, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.RollbackRollout(ctx, n.Namespace, n.Name, &client.RollbackRolloutParams{Party: n.PartyParam(), SlipwayVia: app.Via()}, body)
		}},
	{Verb: rollout.VerbStop, short: "End a rollout: --to stable, new or frozen", because: "the release is called off",
		long: "End a rollout. --to stable (default) goes back, --to new finishes now, --to frozen leaves pods and traffic where they are and gives the workload free.",
		call: func(ctx context.Context, api *client.Client, n app.Name, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.StopRollout(ctx, n.Namespace, n.Name, &client.StopRolloutParams{Party: n.PartyParam(), SlipwayVia: app.Via()}, body)
		}},
	{Verb: rollout.VerbJump, short: "Go to another step: --to-step N", because: "skip the small steps",
		long: "Go to another step. Forwards it brings the pods of that step; backwards it moves traffic only, never pods.",
		call: func(ctx context.Context, api *client.Client, n app.Name, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.JumpRollout(ctx, n.Namespace, n.Name, &client.JumpRolloutParams{Party: n.PartyParam(), SlipwayVia: app.Via()}, body)
		}},
	{Verb: rollout.VerbRetry, short: "Try a failed step again, or put ours back after somebody's edit", because: "the image is pushed now",
		long: "Try a failed step again. After somebody else has edited what is released, this puts ours back.",
		call: func(ctx context.Context, api *client.Client, n app.Name, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.RetryRollout(ctx, n.Namespace, n.Name, &client.RetryRolloutParams{Party: n.PartyParam(), SlipwayVia: app.Via()}, body)
		}},
}

func verbCommands(a *app.App) []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range Verbs {
		commands = append(commands, verbCommand(a, v))
	}
	return commands
}

// verbOptions are what a person says along with a verb.
type verbOptions struct {
	app.Place
	person app.Who
	body   client.RolloutVerbRequest
	output string
	// yes approves what is shown without asking.
	yes bool
}

func verbCommand(a *app.App, v verb) *cobra.Command {
	options := &verbOptions{}
	extra := map[rollout.Verb]string{rollout.VerbStop: " --to stable", rollout.VerbJump: " --to-step 3"}[v.Verb]
	command := &cobra.Command{
		Use:               string(v.Verb) + " NAME",
		Short:             v.short,
		Long:              v.long + " A refusal says why, and the exit code is 1.",
		Example:           fmt.Sprintf("  slipway rollout %s shop/web%s --reason %q", v.Verb, extra, v.because),
		Args:              app.OneName("a rollout"),
		ValidArgsFunction: complete(a, &options.Place, rollout.PhaseProgressing, rollout.PhaseFailed),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := options.Named(args[0])
			if err != nil {
				return err
			}
			if v.Verb == rollout.VerbJump && options.body.ToStep < 1 {
				return app.Usagef("--to-step says which step to go to, from 1")
			}
			return sendVerb(a, c, v, name, options)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &options.output)
	options.Flags(command)
	options.person.Flags(command)
	f := command.Flags()
	f.StringVar(&options.body.Key, "key", "", "idempotency `key`: the same key again is the same command (default: a random one)")
	f.IntVar(&options.body.Step, "step", 0, "the `step` that it is meant for; another one is refused (default: the one that is at hand)")
	if v.gated {
		f.StringVar(&options.body.Gate, "gate", "", "waitingFor.gate of the step that is meant; a stale one is refused (default: read now)")
		f.BoolVarP(&options.yes, "yes", "y", false, "do not ask: take the step that waits now")
	}
	switch v.Verb {
	case rollout.VerbStop:
		f.StringVar(&options.body.To, "to", "", "where to leave the workload: `side` stable, new or frozen (default: stable, where the workload can still be brought there)")
		sides := []string{string(rollout.StopToStable), string(rollout.StopToNew), string(rollout.StopToFrozen)}
		_ = command.RegisterFlagCompletionFunc("to", cobra.FixedCompletions(sides, cobra.ShellCompDirectiveNoFileComp))
	case rollout.VerbJump:
		f.IntVar(&options.body.ToStep, "to-step", 0, "the `step` to go to, from 1")
	}
	return command
}

func sendVerb(a *app.App, c *cobra.Command, v verb, name app.Name, o *verbOptions) error {
	api, err := a.ConnectToWrite(c)
	if err != nil {
		return err
	}
	body := o.body
	body.Actor, body.Reason, body.Key = o.person.Name(), o.person.Reason, app.KeyOrRandom(body.Key)
	if v.gated && body.Gate == "" {
		if err := showGate(c.Context(), a, api, approval{verb: v.Verb, name: name, yes: o.yes}, &body); err != nil {
			return err
		}
	}
	answer, err := apiclient.Read[client.Rollout](v.call(c.Context(), api, name, body))
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "Whether the command arrived is not known. Repeated with the same key it counts once:\n  slipway rollout %s %s%s --key %s\n",
			v.Verb, name.Arguments(), Repeated(body), body.Key)
	}
	if err != nil {
		return err
	}
	if done, err := a.PrintObject(o.output, answer.Raw); done || err != nil {
		return err
	}
	a.Printf(a.Out, "rollout %s is %s%s\n", keyOf(answer.Value), answer.Value.Phase, render.Because(answer.Value.Reason))
	return nil
}

// Repeated are the flags that the same command needs again.
func Repeated(body client.RolloutVerbRequest) string {
	var flags strings.Builder
	if body.Step != 0 {
		fmt.Fprintf(&flags, " --step %d", body.Step)
	}
	if body.Gate != "" {
		fmt.Fprintf(&flags, " --gate %s", body.Gate)
	}
	if body.To != "" {
		fmt.Fprintf(&flags, " --to %s", body.To)
	}
	if body.ToStep != 0 {
		fmt.Fprintf(&flags, " --to-step %d", body.ToStep)
	}
	return flags.String()
}
