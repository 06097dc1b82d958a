package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/rollout"
)

// rolloutVerb says what one of the commands that steer a rollout does.
type rolloutVerb struct {
	verb        rollout.Verb
	short, long string
	// because is the reason that the example gives.
	because string
	// gated verbs read the rollout first, say what they are about, and send its step and gate back, so that a stale one is refused.
	gated bool
	call  func(ctx context.Context, api *client.Client, n rolloutName, body client.RolloutVerbRequest) (*http.Response, error)
}

// rolloutVerbs are the verbs in the order in which people need them.
var rolloutVerbs = []rolloutVerb{
	{verb: rollout.VerbApprove, short: "Approve the step that waits", because: "the error rate is fine", gated: true,
		long: "Approve the step that waits for a person, or cut a timed pause short. What is approved is shown, and only that: when the rollout has moved on meanwhile, the approval is refused.",
		call: func(ctx context.Context, api *client.Client, n rolloutName, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.ApproveRollout(ctx, n.namespace, n.name, &client.ApproveRolloutParams{Party: n.partyParam(), SlipwayVia: via()}, body)
		}},
	{verb: rollout.VerbPromote, short: "Finish without the waits that are left", because: "verified by hand", gated: true,
		long: "Go through the steps that are left without their pauses and approvals. When the rollout has moved on meanwhile, this is refused.",
		call: func(ctx context.Context, api *client.Client, n rolloutName, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.PromoteRollout(ctx, n.namespace, n.name, &client.PromoteRolloutParams{Party: n.partyParam(), SlipwayVia: via()}, body)
		}},
	{verb: rollout.VerbPause, short: "Pause a rollout", because: "wait for the database team",
		long: "Pause a rollout. A step that moves pods stops where it is: those that have moved stay, and no other moves until it is resumed.",
		call: func(ctx context.Context, api *client.Client, n rolloutName, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.PauseRollout(ctx, n.namespace, n.name, &client.PauseRolloutParams{Party: n.partyParam(), SlipwayVia: via()}, body)
		}},
	{verb: rollout.VerbResume, short: "Resume a paused rollout", because: "the database is ready",
		long: "Resume a rollout that was paused. It goes on where it was.",
		call: func(ctx context.Context, api *client.Client, n rolloutName, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.ResumeRollout(ctx, n.namespace, n.name, &client.ResumeRolloutParams{Party: n.partyParam(), SlipwayVia: via()}, body)
		}},
	{verb: rollout.VerbRollback, short: "Go back to the stable version", because: "the error rate is up",
		long: "Go back to the stable version: traffic first, then pods. It also brings home a rollout that was stopped to frozen.",
		call: func(ctx context.Context, api *client.Client, n rolloutName, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.RollbackRollout(ctx, n.namespace, n.name, &client.RollbackRolloutParams{Party: n.partyParam(), SlipwayVia: via()}, body)
		}},
	{verb: rollout.VerbStop, short: "End a rollout: --to stable, new or frozen", because: "the release is called off",
		long: "End a rollout. --to stable (default) goes back, --to new finishes now, --to frozen leaves pods and traffic where they are and gives the workload free.",
		call: func(ctx context.Context, api *client.Client, n rolloutName, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.StopRollout(ctx, n.namespace, n.name, &client.StopRolloutParams{Party: n.partyParam(), SlipwayVia: via()}, body)
		}},
	{verb: rollout.VerbJump, short: "Go to another step: --to-step N", because: "skip the small steps",
		long: "Go to another step. Forwards it brings the pods of that step; backwards it moves traffic only, never pods.",
		call: func(ctx context.Context, api *client.Client, n rolloutName, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.JumpRollout(ctx, n.namespace, n.name, &client.JumpRolloutParams{Party: n.partyParam(), SlipwayVia: via()}, body)
		}},
	{verb: rollout.VerbRetry, short: "Try a failed step again, or put ours back after somebody's edit", because: "the image is pushed now",
		long: "Try a failed step again. After somebody else has edited what is released, this puts ours back.",
		call: func(ctx context.Context, api *client.Client, n rolloutName, body client.RolloutVerbRequest) (*http.Response, error) {
			return api.RetryRollout(ctx, n.namespace, n.name, &client.RetryRolloutParams{Party: n.partyParam(), SlipwayVia: via()}, body)
		}},
}

func (a *app) rolloutVerbCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range rolloutVerbs {
		commands = append(commands, a.rolloutVerbCommand(v))
	}
	return commands
}

// verbOptions are what a person says along with a verb.
type verbOptions struct {
	place
	person who
	body   client.RolloutVerbRequest
	output string
}

func (a *app) rolloutVerbCommand(v rolloutVerb) *cobra.Command {
	options := &verbOptions{}
	extra := map[rollout.Verb]string{rollout.VerbStop: " --to stable", rollout.VerbJump: " --to-step 3"}[v.verb]
	command := &cobra.Command{
		Use:               string(v.verb) + " NAME",
		Short:             v.short,
		Long:              v.long + " A refusal says why, and the exit code is 1.",
		Example:           fmt.Sprintf("  slipway rollout %s shop/web%s --reason %q", v.verb, extra, v.because),
		Args:              oneName("a rollout"),
		ValidArgsFunction: a.completeRollouts(&options.place, rollout.PhaseProgressing, rollout.PhaseFailed),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := options.named(args[0])
			if err != nil {
				return err
			}
			if v.verb == rollout.VerbJump && options.body.ToStep < 1 {
				return usagef("--to-step says which step to go to, from 1")
			}
			return a.sendVerb(c, v, name, options)
		},
	}
	clientFlags(command)
	outputFlag(command, &options.output)
	options.flags(command)
	options.person.flags(command)
	f := command.Flags()
	f.StringVar(&options.body.Key, "key", "", "idempotency `key`: the same key again is the same command (default: a random one)")
	f.IntVar(&options.body.Step, "step", 0, "the `step` that it is meant for; another one is refused (default: the one that is at hand)")
	if v.gated {
		f.StringVar(&options.body.Gate, "gate", "", "waitingFor.gate as it was seen earlier; a stale one is refused (default: read now)")
	}
	switch v.verb {
	case rollout.VerbStop:
		f.StringVar(&options.body.To, "to", "", "where to leave the workload: `side` stable, new or frozen (default: stable, where the workload can still be brought there)")
		sides := []string{string(rollout.StopToStable), string(rollout.StopToNew), string(rollout.StopToFrozen)}
		_ = command.RegisterFlagCompletionFunc("to", cobra.FixedCompletions(sides, cobra.ShellCompDirectiveNoFileComp))
	case rollout.VerbJump:
		f.IntVar(&options.body.ToStep, "to-step", 0, "the `step` to go to, from 1")
	}
	return command
}

func (a *app) sendVerb(c *cobra.Command, v rolloutVerb, name rolloutName, o *verbOptions) error {
	api, err := a.connectToWrite(c)
	if err != nil {
		return err
	}
	body := o.body
	body.Actor, body.Reason, body.Key = o.person.name(), o.person.reason, keyOrRandom(body.Key)
	if v.gated {
		if err := a.showGate(c.Context(), api, v.verb, name, &body); err != nil {
			return err
		}
	}
	answer, err := read[client.Rollout](v.call(c.Context(), api, name, body))
	if outcomeUnknown(err) {
		a.printf(a.err, "Whether the command arrived is not known. Repeated with the same key it counts once:\n  slipway rollout %s %s%s --key %s\n",
			v.verb, name.arguments(), repeated(body), body.Key)
	}
	if err != nil {
		return err
	}
	if done, err := a.printObject(o.output, answer.raw); done || err != nil {
		return err
	}
	a.printf(a.out, "rollout %s is %s%s\n", keyOf(answer.value), answer.value.Phase, because(answer.value.Reason))
	return nil
}

// showGate says what is about to be approved, and has exactly that approved: step and gate go along unless the caller named them.
func (a *app) showGate(ctx context.Context, api *client.Client, verb rollout.Verb, name rolloutName, body *client.RolloutVerbRequest) error {
	if body.Gate != "" && body.Step != 0 {
		return nil
	}
	answer, err := readRollout(ctx, api, name)
	if err != nil {
		return err
	}
	s := answer.value
	if body.Step == 0 {
		body.Step = s.CurrentStepIndex
	}
	if body.Gate == "" && s.WaitingFor != nil {
		body.Gate = s.WaitingFor.Gate
	}
	a.printf(a.err, "%s of step %d of %d of rollout %s", verb, s.CurrentStepIndex, len(s.Steps), keyOf(s))
	if s.WaitingFor != nil {
		a.printf(a.err, ", which waits for %s since %s", waitInWords(s.WaitingFor.Kind), clock(s.WaitingFor.Since, a.now()))
	}
	a.printf(a.err, "\n")
	for _, line := range a.drawing().render(a.drawing().splitLines(s), unbounded) {
		a.printf(a.err, "  %s\n", line)
	}
	return nil
}

// repeated are the flags that the same command needs again.
func repeated(body client.RolloutVerbRequest) string {
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
