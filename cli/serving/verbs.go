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

// verb says what one of the commands that steer the operation on a serving does.
type verb struct {
	Verb        serving.Verb
	short, long string
	// because is the reason that the example gives.
	because string
	call    func(context.Context, *client.Client, string, client.ServingVerbRequest) (*http.Response, error)
}

// Verbs are the verbs in the order in which people need them.
var Verbs = []verb{
	{serving.VerbApprove, "Have the next party of an update begin",
		"Have the party begin that waits for an approval, where the serving's policy has approval: betweenParties. " +
			"The command shows the party and asks for a confirmation. " +
			"Without a terminal, give --party, --gate or --yes. If the update has moved on meanwhile, the engine refuses the approval.",
		"alice's numbers are good", noun.Sender((*client.Client).ApproveServing)},
	{serving.VerbPause, "Hold the operation on a serving",
		"Hold the operation on a serving. What has begun goes on; no other party begins until it is resumed.",
		"wait for the database team", noun.Sender((*client.Client).PauseServing)},
	{serving.VerbResume, "Go on with a paused operation", "Go on with an operation that was paused.",
		"the database is ready", noun.Sender((*client.Client).ResumeServing)},
	{serving.VerbStop, "Take an update back in all parties",
		"Take an update back: every party goes back to the version of before, since an update is all or nothing. " +
			"A creation has none, and is refused: delete the serving instead.",
		"alice's numbers are bad", noun.Sender((*client.Client).StopServing)},
}

func verbs(n *servings) []noun.Verb {
	var all []noun.Verb
	for _, v := range Verbs {
		o := &said{}
		one := noun.Verb{
			Name: string(v.Verb), Short: v.short, Long: v.long, Because: v.because, Example: "serving-01", Complete: n.Completion,
			Send: func(ctx context.Context, api *client.Client, id string, who app.Who) (*http.Response, error) {
				o.body.Actor, o.body.Reason, o.body.Key = who.Actor, who.Reason, who.Key
				return v.call(ctx, api, id, o.body)
			},
			Again: func(id string) string { return id + repeatedApproval(o.body) },
		}
		if v.Verb == serving.VerbApprove {
			one.Flags = o.flags
			one.Confirm = func(ctx context.Context, api *client.Client, id string) error { return o.confirm(ctx, n.App, api, id) }
		}
		all = append(all, one)
	}
	return all
}

type said struct {
	body client.ServingVerbRequest
	// yes approves what is shown without asking.
	yes bool
}

func (o *said) flags(command *cobra.Command) {
	f := command.Flags()
	f.StringVar(&o.body.Party, "party", "", "the `party` that it is meant for; another one is refused (default: the one that waits)")
	f.StringVar(&o.body.Gate, "gate", "", "waitingFor.gate of the party that is meant; a stale one is refused (default: read now)")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask: take the party that waits now")
}

// gateOfNothing is the gate of an approval at which nobody was seen to wait: whoever comes to wait while it is on its way is not
// meant by it.
const gateOfNothing = "nobody-waited"

// confirm shows what is about to be approved, asks, and has exactly that approved: its gate goes along. A party that the caller named
// is not asked about; if another one waits, only the party goes along, and the engine refuses it.
func (o *said) confirm(ctx context.Context, a *app.App, api *client.Client, id string) error {
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
			o.body.Gate = gateOfNothing // the engine says why there is nothing to approve
		}
		return nil
	}
	a.Printf(a.Err, "approve of serving %s, which waits for %s since %s\n", id, waitInWords(w), render.Clock(w.Since.Time, a.Now()))
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
	return a.Agree(fmt.Sprintf("Approve %s?", render.OneLine(w.Party)), fmt.Sprintf("--party %s, --gate or --yes", render.OneLine(w.Party)))
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

// waitOf is the person whom a serving's operation waits for; nil when for nobody.
func waitOf(v serving.View) *kuscia.WaitingFor {
	if v.Operation == nil {
		return nil
	}
	return v.Operation.WaitingFor
}

// waitInWords reads "an approval of bob".
func waitInWords(w *kuscia.WaitingFor) string {
	switch w.Kind {
	case serving.WaitApproval:
		return render.OneLine("an approval of " + w.Party)
	case serving.WaitResume:
		return "somebody to resume it"
	}
	return render.OneLine(w.Kind)
}
