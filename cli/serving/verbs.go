package serving

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// verb defines a command that controls the operation on a serving.
type verb struct {
	Verb        serving.Verb
	short, long string
	// exampleReason is the reason in the example.
	exampleReason string
	call          func(context.Context, *client.Client, string, client.ServingVerbRequest) (*http.Response, error)
}

// Verbs are the verbs in the order of the help.
var Verbs = []verb{
	{serving.VerbApprove, "Approve the next party of an update",
		"Approve the party that waits for approval, if the serving's policy has approval: betweenParties. The " +
			"command shows the party and asks for confirmation. Without a terminal, use --party, --gate or --yes. If " +
			"the update has moved on in the meantime, the engine rejects the approval.",
		"alice's numbers are good", noun.Sender((*client.Client).ApproveServing)},
	{serving.VerbPause, "Pause the operation on a serving",
		"Pause the operation on a serving. Parties already started continue; no other party starts until it is " +
			"resumed.",
		"wait for the database team", noun.Sender((*client.Client).PauseServing)},
	{serving.VerbResume, "Resume a paused operation", "Resume a paused operation.",
		"the database is ready", noun.Sender((*client.Client).ResumeServing)},
	{serving.VerbStop, "Roll an update back in all parties",
		"Roll an update back: all parties return to the previous version, because an update is all or nothing. A " +
			"creation cannot be stopped: delete the serving instead.",
		"alice's numbers are bad", noun.Sender((*client.Client).StopServing)},
}

func verbs(n *servings) []noun.Verb {
	var all []noun.Verb
	for _, v := range Verbs {
		o := &verbFlags{}
		one := noun.Verb{
			Name: string(v.Verb), Short: v.short, Long: v.long, ExampleReason: v.exampleReason, Example: "serving-01",
			Complete: n.Completion,
			Send: func(ctx context.Context, api *client.Client, id string, who app.ActorFlags) (*http.Response, error) {
				o.body.Actor, o.body.Reason, o.body.Key = who.Actor, who.Reason, who.Key
				return v.call(ctx, api, id, o.body)
			},
			RepeatArgs: func(id string) string { return id + repeatedApproval(o.body) },
		}
		if v.Verb == serving.VerbApprove {
			one.Flags = o.flags
			one.Confirm = func(ctx context.Context, api *client.Client, id string) error {
				return o.confirm(ctx, n.App, api, id)
			}
		}
		all = append(all, one)
	}
	return all
}

// verbFlags holds the flags of a verb.
type verbFlags struct {
	body client.ServingVerbRequest
	// yes skips the confirmation.
	yes bool
}

func (o *verbFlags) flags(command *cobra.Command) {
	f := command.Flags()
	f.StringVar(&o.body.Party, "party", "", "the `party` that is meant; if another party waits, the command is "+
		"rejected (default: the waiting party)")
	f.StringVar(&o.body.Gate, "gate", "", "waitingFor.gate of the party that is meant; a stale gate is rejected "+
		"(default: the current gate)")
	f.BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation and use the waiting party")
}

// noGate is the gate of an approval that was sent while no party was waiting. It never matches, so the approval cannot
// apply to a party that starts waiting in the meantime.
const noGate = "nobody-waited"

// confirm shows the party, asks for confirmation and sends the gate of this party. If the user named the party, it does
// not ask; if another party waits, it sends only the party, and the engine rejects it.
func (o *verbFlags) confirm(ctx context.Context, a *app.App, api *client.Client, id string) error {
	if o.body.Gate != "" {
		return nil
	}
	answer, err := apiclient.Read[serving.View](api.GetServing(ctx, id))
	if err != nil {
		return err
	}
	w := waitOf(answer.Value)
	if w == nil || w.Kind != serving.WaitApproval {
		if o.body.Party == "" {
			o.body.Gate = noGate // the engine's error explains why there is nothing to approve
		}
		return nil
	}
	a.Printf(a.Err, "approve serving %s, waiting for %s since %s\n", id, waitText(w),
		render.Clock(w.Since.Time, a.Now()))
	for _, line := range a.Drawing().Render(partyLines(answer.Value.Parties), render.Unbounded) {
		a.Printf(a.Err, "%s\n", line)
	}
	if o.body.Party != "" && o.body.Party != w.Party {
		return nil
	}
	named := o.body.Party != ""
	o.body.Gate = w.Gate
	if named || o.yes {
		return nil
	}
	return a.RequireConfirmation(fmt.Sprintf("Approve %s?", render.OneLine(w.Party)),
		fmt.Sprintf("--party %s, --gate or --yes", render.OneLine(w.Party)))
}

func repeatedApproval(body client.ServingVerbRequest) string {
	flags := ""
	if body.Party != "" {
		flags += " --party " + body.Party
	}
	if body.Gate != "" {
		flags += " --gate " + body.Gate
	}
	return flags
}

// waitOf returns what the serving's operation waits for from a user; nil if it is not waiting.
func waitOf(v serving.View) *kuscia.WaitingFor {
	if v.Operation == nil {
		return nil
	}
	return v.Operation.WaitingFor
}

// waitText returns, for example, "approval of bob".
func waitText(w *kuscia.WaitingFor) string {
	switch w.Kind {
	case serving.WaitApproval:
		return render.OneLine("approval of " + w.Party)
	case serving.WaitResume:
		return "resume"
	}
	return render.OneLine(w.Kind)
}
