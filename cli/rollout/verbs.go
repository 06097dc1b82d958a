package rollout

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
)

// verb defines a command that controls a rollout.
type verb struct {
	Verb        rollout.Verb
	short, long string
	// exampleReason is the reason in the example.
	exampleReason string
	// needsGate verbs first read the rollout and show its step. They send its step and gate, so that the engine rejects
	// a stale one.
	needsGate bool
	call      func(context.Context, *client.Client, app.ObjectName, client.RolloutVerbRequest) (*http.Response, error)
}

// gatedHelp explains how approve and promote make sure that the right step is meant.
const gatedHelp = `The command shows the step and asks for confirmation. Without a terminal, use --step, --gate or
--yes. If the rollout has moved on in the meantime, the engine rejects the command.`

// Verbs are the verbs in the order of the help.
var Verbs = []verb{
	{rollout.VerbApprove, "Approve the waiting step",
		"Approve the step that waits for approval, or end a timed pause early. " + gatedHelp,
		"the error rate is fine", true, sender((*client.Client).ApproveRollout)},
	{rollout.VerbPromote, "Finish without further pauses and approvals",
		"Execute the remaining steps without pauses and approvals. " + gatedHelp,
		"verified by hand", true, sender((*client.Client).PromoteRollout)},
	{rollout.VerbPause, "Pause a rollout",
		"Pause a rollout. A step that is replacing pods stops: pods already replaced remain, and no more are " +
			"replaced until it is resumed.",
		"wait for the database team", false, sender((*client.Client).PauseRollout)},
	{rollout.VerbResume, "Resume a paused rollout", "Resume a paused rollout. It continues where it stopped.",
		"the database is ready", false, sender((*client.Client).ResumeRollout)},
	{rollout.VerbRollback, "Go back to the stable version",
		"Go back to the stable version: traffic first, then pods. This also works after the rollout was stopped with " +
			"--to frozen.",
		"the error rate is up", false, sender((*client.Client).RollbackRollout)},
	{rollout.VerbStop, "End a rollout: --to stable, new or frozen",
		"End a rollout. --to stable (default) rolls back, --to new finishes now, --to frozen leaves pods and traffic " +
			"unchanged and releases the workload.",
		"the release was cancelled", false, sender((*client.Client).StopRollout)},
	{rollout.VerbJump, "Jump to another step: --to-step N",
		"Jump to another step. A later step moves pods and traffic; an earlier step moves only traffic, never pods.",
		"skip the small steps", false, sender((*client.Client).JumpRollout)},
	{rollout.VerbRetry, "Retry a failed step, or restore the rollout's settings after drift",
		"Retry a failed step. After another client changed the workload, this restores the rollout's own settings.",
		"the image has been pushed", false, sender((*client.Client).RetryRollout)},
}

// sender returns a call that sends a verb to a rollout. The party is a query parameter.
func sender[Params any](call func(*client.Client, context.Context, string, string, *Params, client.RolloutVerbRequest,
	...client.RequestEditorFn) (*http.Response, error),
) func(context.Context, *client.Client, app.ObjectName, client.RolloutVerbRequest) (*http.Response, error) {
	return func(ctx context.Context, api *client.Client, n app.ObjectName,
		body client.RolloutVerbRequest) (*http.Response, error) {
		return call(api, ctx, n.Namespace, n.Name, nil, body, func(_ context.Context, r *http.Request) error {
			if party := n.PartyParam(); party != nil {
				query := r.URL.Query()
				query.Set("party", *party)
				r.URL.RawQuery = query.Encode()
			}
			return nil
		})
	}
}

func verbs(n *rollouts) []noun.Verb {
	open := *n
	open.Page = pages(n.Scope, client.ListRolloutsParams{Phase: &[]rollout.Phase{rollout.PhaseProgressing,
		rollout.PhaseFailed}})
	var all []noun.Verb
	for _, v := range Verbs {
		o := &verbFlags{verb: v}
		one := noun.Verb{
			Name: string(v.Verb), Short: v.short, Long: v.long, ExampleReason: v.exampleReason,
			Example: "shop/web" + map[rollout.Verb]string{rollout.VerbStop: " --to stable",
				rollout.VerbJump: " --to-step 3"}[v.Verb],
			Complete: open.Completion, Flags: o.flags,
			Send: func(ctx context.Context, api *client.Client, key string, who app.ActorFlags) (*http.Response,
				error) {
				o.body.Actor, o.body.Reason, o.body.Key = who.Actor, who.Reason, who.Key
				return v.call(ctx, api, nameOf(n.Scope.Party, key), o.body)
			},
			RepeatArgs: func(key string) string {
				return nameOf(n.Scope.Party, key).CommandArgs() + RepeatFlags(o.body)
			},
		}
		if v.needsGate {
			one.Confirm = func(ctx context.Context, api *client.Client, key string) error {
				return o.confirm(ctx, n.App, api, nameOf(n.Scope.Party, key))
			}
		}
		switch v.Verb {
		case rollout.VerbJump:
			one.Check = func() error {
				if o.body.ToStep < 1 {
					return app.Usagef("--to-step must be 1 or greater")
				}
				return nil
			}
		case rollout.VerbStop:
			one.Check = func() error { return app.CheckOneOf("to", o.body.To, rollout.StopTos) }
		}
		all = append(all, one)
	}
	return all
}

// verbFlags holds the flags of a verb.
type verbFlags struct {
	verb verb
	body client.RolloutVerbRequest
	// yes skips the confirmation.
	yes bool
}

func (o *verbFlags) flags(command *cobra.Command) {
	f := command.Flags()
	f.IntVar(&o.body.Step, "step", 0, "the `step` that is meant; if the rollout is at another step, the command is "+
		"rejected (default: the current step)")
	if o.verb.needsGate {
		f.StringVar(&o.body.Gate, "gate", "", "waitingFor.gate of the step that is meant; a stale gate is rejected "+
			"(default: the current gate)")
		f.BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation and use the current step")
	}
	switch o.verb.Verb {
	case rollout.VerbStop:
		f.StringVar(&o.body.To, "to", "", "`state` in which to leave the workload: stable, new or frozen "+
			"(default: stable, if still possible)")
		app.FlagChoices(command, "to", rollout.StopTos...)
	case rollout.VerbJump:
		f.IntVar(&o.body.ToStep, "to-step", 0, "the `step` to jump to, from 1")
	}
}

// RepeatFlags returns the flags for repeating the same command.
func RepeatFlags(body client.RolloutVerbRequest) string {
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

// repeatWindow is how soon after an approval another one with --yes is rejected as a mistake: the same command twice
// would otherwise approve step 1 and, as soon as it waits, step 2.
const repeatWindow = 10 * time.Second

// confirm shows the step, asks for confirmation and sends the gate of this step. If the user named the step, it does
// not ask; if another step waits, it sends only the step, and the engine rejects it.
func (o *verbFlags) confirm(ctx context.Context, a *app.App, api *client.Client, name app.ObjectName) error {
	if o.body.Gate != "" {
		return nil
	}
	answer, err := readOne(ctx, api, name)
	if err != nil {
		return err
	}
	s := answer.Value
	named := o.body.Step != 0
	if !named {
		o.body.Step = s.CurrentStepIndex
	}
	if s.WaitingFor != nil && o.body.Step == s.CurrentStepIndex {
		o.body.Gate = s.WaitingFor.Gate
	}
	a.Printf(a.Err, "%s step %d of %d of rollout %s", o.verb.Verb, s.CurrentStepIndex, len(s.Steps), keyOf(s))
	if s.WaitingFor != nil {
		a.Printf(a.Err, ", waiting for %s since %s", render.WaitText(s.WaitingFor.Kind),
			render.Clock(s.WaitingFor.Since, a.Now()))
	}
	a.Printf(a.Err, "\n")
	for _, line := range a.Drawing().Render(splitLines(s), render.Unbounded) {
		a.Printf(a.Err, "  %s\n", line)
	}
	switch {
	case named:
		return nil
	case o.yes:
		return rejectQuickRepeat(a, o.verb.Verb, s)
	}
	title := "Approve"
	if o.verb.Verb == rollout.VerbPromote {
		title = "Promote from"
	}
	return a.RequireConfirmation(fmt.Sprintf("%s step %d?", title, s.CurrentStepIndex),
		fmt.Sprintf("--step %d, --gate or --yes", s.CurrentStepIndex))
}

// rejectQuickRepeat rejects an approval right after the approval of the previous step, unless the user named the step.
func rejectQuickRepeat(a *app.App, verb rollout.Verb, s rollout.Status) error {
	// a step waits for its window after its own approval
	window := s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitWindow
	for _, d := range s.History {
		earlier := d.Step < s.CurrentStepIndex || window && d.Step == s.CurrentStepIndex
		if d.Verb != rollout.VerbApprove || d.Outcome != audit.Accepted || d.Step == 0 || !earlier {
			continue
		}
		if ago := a.Now().Sub(d.At); ago < repeatWindow {
			return app.Usagef("step %d was approved %s ago, and step %d is waiting now: to %s it, use --step %d",
				d.Step, render.ShortDuration(ago), s.CurrentStepIndex, verb, s.CurrentStepIndex)
		}
	}
	return nil
}
