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

// verb says what one of the commands that steer a rollout does.
type verb struct {
	Verb        rollout.Verb
	short, long string
	// because is the reason that the example gives.
	because string
	// gated verbs read the rollout first, say what they are about, and send its step and gate back, so that a stale one is refused.
	gated bool
	call  func(context.Context, *client.Client, app.Name, client.RolloutVerbRequest) (*http.Response, error)
}

// gatedHelp is how approve and promote make sure that they mean the right step.
const gatedHelp = `The command shows the step and asks for a confirmation.
Without a terminal, give --step, --gate or --yes. If the rollout has moved on meanwhile, the engine refuses the command.`

// Verbs are the verbs in the order in which people need them.
var Verbs = []verb{
	{rollout.VerbApprove, "Approve the step that waits", "Approve the step that waits for a person, or cut a timed pause short. " + gatedHelp,
		"the error rate is fine", true, sender((*client.Client).ApproveRollout)},
	{rollout.VerbPromote, "Finish without the waits that are left",
		"Go through the steps that are left without their pauses and approvals. " + gatedHelp,
		"verified by hand", true, sender((*client.Client).PromoteRollout)},
	{rollout.VerbPause, "Pause a rollout",
		"Pause a rollout. A step that moves pods stops where it is: those that have moved stay, and no other moves until it is resumed.",
		"wait for the database team", false, sender((*client.Client).PauseRollout)},
	{rollout.VerbResume, "Resume a paused rollout", "Resume a rollout that was paused. It goes on where it was.",
		"the database is ready", false, sender((*client.Client).ResumeRollout)},
	{rollout.VerbRollback, "Go back to the stable version",
		"Go back to the stable version: traffic first, then pods. It also brings home a rollout that was stopped to frozen.",
		"the error rate is up", false, sender((*client.Client).RollbackRollout)},
	{rollout.VerbStop, "End a rollout: --to stable, new or frozen", "End a rollout. --to stable (default) goes back, --to new finishes now, " +
		"--to frozen leaves pods and traffic where they are and gives the workload free.",
		"the release is called off", false, sender((*client.Client).StopRollout)},
	{rollout.VerbJump, "Go to another step: --to-step N",
		"Go to another step. Forwards it brings the pods of that step; backwards it moves traffic only, never pods.",
		"skip the small steps", false, sender((*client.Client).JumpRollout)},
	{rollout.VerbRetry, "Try a failed step again, or put ours back after somebody's edit",
		"Try a failed step again. After somebody else has edited what is released, this puts ours back.",
		"the image is pushed now", false, sender((*client.Client).RetryRollout)},
}

// sender sends a verb to the rollout of a name. Which party's it is stands in the query.
func sender[Params any](call func(*client.Client, context.Context, string, string, *Params, client.RolloutVerbRequest,
	...client.RequestEditorFn) (*http.Response, error),
) func(context.Context, *client.Client, app.Name, client.RolloutVerbRequest) (*http.Response, error) {
	return func(ctx context.Context, api *client.Client, n app.Name, body client.RolloutVerbRequest) (*http.Response, error) {
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
	open.Page = pages(n.Place, client.ListRolloutsParams{Phase: &[]rollout.Phase{rollout.PhaseProgressing, rollout.PhaseFailed}})
	var all []noun.Verb
	for _, v := range Verbs {
		o := &said{verb: v}
		one := noun.Verb{
			Name: string(v.Verb), Short: v.short, Long: v.long, Because: v.because,
			Example:  "shop/web" + map[rollout.Verb]string{rollout.VerbStop: " --to stable", rollout.VerbJump: " --to-step 3"}[v.Verb],
			Complete: open.Completion, Flags: o.flags,
			Send: func(ctx context.Context, api *client.Client, key string, who app.Who) (*http.Response, error) {
				o.body.Actor, o.body.Reason, o.body.Key = who.Actor, who.Reason, who.Key
				return v.call(ctx, api, nameOf(n.Place.Party, key), o.body)
			},
			Again: func(key string) string { return nameOf(n.Place.Party, key).Arguments() + Again(o.body) },
		}
		if v.gated {
			one.Confirm = func(ctx context.Context, api *client.Client, key string) error {
				return o.confirm(ctx, n.App, api, nameOf(n.Place.Party, key))
			}
		}
		switch v.Verb {
		case rollout.VerbJump:
			one.Check = func() error {
				if o.body.ToStep < 1 {
					return app.Usagef("--to-step says which step to go to, from 1")
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

type said struct {
	verb verb
	body client.RolloutVerbRequest
	// yes approves what is shown without asking.
	yes bool
}

func (o *said) flags(command *cobra.Command) {
	f := command.Flags()
	f.IntVar(&o.body.Step, "step", 0, "the `step` that it is meant for; another one is refused (default: the one that is at hand)")
	if o.verb.gated {
		f.StringVar(&o.body.Gate, "gate", "", "waitingFor.gate of the step that is meant; a stale one is refused (default: read now)")
		f.BoolVarP(&o.yes, "yes", "y", false, "do not ask: take the step that waits now")
	}
	switch o.verb.Verb {
	case rollout.VerbStop:
		f.StringVar(&o.body.To, "to", "", "where to leave the workload: `side` stable, new or frozen "+
			"(default: stable, where the workload can still be brought there)")
		app.FlagChoices(command, "to", rollout.StopTos...)
	case rollout.VerbJump:
		f.IntVar(&o.body.ToStep, "to-step", 0, "the `step` to go to, from 1")
	}
}

// Again are the flags that the same command needs again.
func Again(body client.RolloutVerbRequest) string {
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

// repeatWindow is how soon after an approval another one with --yes counts as a slip of the hand: the same command twice would
// otherwise approve step 1 and, as soon as that waits, step 2.
const repeatWindow = 10 * time.Second

// confirm shows what is about to be approved, asks, and has exactly that approved: its gate goes along. A step that the caller named
// is not asked about; if another one waits, only the step goes along, and the engine refuses it.
func (o *said) confirm(ctx context.Context, a *app.App, api *client.Client, name app.Name) error {
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
	a.Printf(a.Err, "%s of step %d of %d of rollout %s", o.verb.Verb, s.CurrentStepIndex, len(s.Steps), keyOf(s))
	if s.WaitingFor != nil {
		a.Printf(a.Err, ", which waits for %s since %s", render.WaitInWords(s.WaitingFor.Kind), render.Clock(s.WaitingFor.Since, a.Now()))
	}
	a.Printf(a.Err, "\n")
	for _, line := range a.Drawing().Render(splitLines(s), render.Unbounded) {
		a.Printf(a.Err, "  %s\n", line)
	}
	switch {
	case named:
		return nil
	case o.yes:
		return refuseRepeat(a, o.verb.Verb, s)
	}
	title := "Approve"
	if o.verb.Verb == rollout.VerbPromote {
		title = "Promote from"
	}
	return a.Agree(fmt.Sprintf("%s step %d?", title, s.CurrentStepIndex), fmt.Sprintf("--step %d, --gate or --yes", s.CurrentStepIndex))
}

// refuseRepeat refuses to approve a step right after the one before it, when nobody has said which step is meant.
func refuseRepeat(a *app.App, verb rollout.Verb, s rollout.Status) error {
	window := s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitWindow // which comes after the approval of the very step
	for _, d := range s.History {
		earlier := d.Step < s.CurrentStepIndex || window && d.Step == s.CurrentStepIndex
		if d.Verb != rollout.VerbApprove || d.Outcome != audit.Accepted || d.Step == 0 || !earlier {
			continue
		}
		if ago := a.Now().Sub(d.At); ago < repeatWindow {
			return app.Usagef("step %d was approved %s ago, and step %d waits now: if you mean that one, %s it with --step %d",
				d.Step, render.ShortDuration(ago), s.CurrentStepIndex, verb, s.CurrentStepIndex)
		}
	}
	return nil
}
