package serving

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
	"slipway.io/slipway/release/serving"
)

// verb says what one of the commands that steer the operation on a serving does.
type verb struct {
	Verb        serving.Verb
	short, long string
	// because is the reason that the example gives.
	because string
	call    func(ctx context.Context, api *client.Client, id string, body client.ServingVerbRequest) (*http.Response, error)
}

// Verbs are the verbs in the order in which people need them.
var Verbs = []verb{
	{Verb: serving.VerbApprove, short: "Have the next party of an update begin", because: "alice's numbers are good",
		long: "Have the party begin that waits for an approval, where the serving's policy has approval: betweenParties. The command shows the party and asks for a confirmation. " +
			"Without a terminal, give --party, --gate or --yes. If the update has moved on meanwhile, the engine refuses the approval.",
		call: func(ctx context.Context, api *client.Client, id string, body client.ServingVerbRequest) (*http.Response, error) {
			return api.ApproveServing(ctx, id, &client.ApproveServingParams{SlipwayVia: app.Via()}, body)
		}},
	{Verb: serving.VerbPause, short: "Hold the operation on a serving", because: "wait for the database team",
		long: "Hold the operation on a serving. What has begun goes on; no other party begins until it is resumed.",
		call: func(ctx context.Context, api *client.Client, id string, body client.ServingVerbRequest) (*http.Response, error) {
			return api.PauseServing(ctx, id, &client.PauseServingParams{SlipwayVia: app.Via()}, body)
		}},
	{Verb: serving.VerbResume, short: "Go on with a paused operation", because: "the database is ready",
		long: "Go on with an operation that was paused.",
		call: func(ctx context.Context, api *client.Client, id string, body client.ServingVerbRequest) (*http.Response, error) {
			return api.ResumeServing(ctx, id, &client.ResumeServingParams{SlipwayVia: app.Via()}, body)
		}},
	{Verb: serving.VerbStop, short: "Take an update back in all parties", because: "alice's numbers are bad",
		long: "Take an update back: every party goes back to the version of before, since an update is all or nothing. A creation has none, and is refused: delete the serving instead.",
		call: func(ctx context.Context, api *client.Client, id string, body client.ServingVerbRequest) (*http.Response, error) {
			return api.StopServing(ctx, id, &client.StopServingParams{SlipwayVia: app.Via()}, body)
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
	person app.Who
	body   client.ServingVerbRequest
	output string
	// yes approves what is shown without asking.
	yes bool
}

func verbCommand(a *app.App, v verb) *cobra.Command {
	options := &verbOptions{}
	command := &cobra.Command{
		Use:               string(v.Verb) + " ID",
		Short:             v.short,
		Long:              v.long + " A refusal says why, and the exit code is 1.",
		Example:           fmt.Sprintf("  slipway serving %s serving-01 --reason %q", v.Verb, v.because),
		Args:              app.ExactName("a serving", "ID"),
		ValidArgsFunction: a.Complete(ids),
		RunE:              func(c *cobra.Command, args []string) error { return sendServingVerb(a, c, v, args[0], options) },
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &options.output)
	options.person.Flags(command)
	f := command.Flags()
	f.StringVar(&options.body.Key, "key", "", "idempotency `key`: the same key again is the same command (default: a random one)")
	if v.Verb == serving.VerbApprove {
		f.StringVar(&options.body.Party, "party", "", "the `party` that it is meant for; another one is refused (default: the one that waits)")
		f.StringVar(&options.body.Gate, "gate", "", "waitingFor.gate of the party that is meant; a stale one is refused (default: read now)")
		f.BoolVarP(&options.yes, "yes", "y", false, "do not ask: take the party that waits now")
	}
	return command
}

func sendServingVerb(a *app.App, c *cobra.Command, v verb, id string, o *verbOptions) error {
	api, err := a.ConnectToWrite(c)
	if err != nil {
		return err
	}
	body := o.body
	body.Actor, body.Reason, body.Key = o.person.Name(), o.person.Reason, app.KeyOrRandom(body.Key)
	if v.Verb == serving.VerbApprove && body.Gate == "" {
		if err := showApproval(c.Context(), a, api, id, o, &body); err != nil {
			return err
		}
	}
	answer, err := apiclient.Read[client.Serving](v.call(c.Context(), api, id, body))
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "Whether the command arrived is not known. Repeated with the same key it counts once:\n  slipway serving %s %s%s --key %s\n",
			v.Verb, id, repeatedApproval(body), body.Key)
	}
	if err != nil {
		return err
	}
	if done, err := a.PrintObject(o.output, answer.Raw); done || err != nil {
		return err
	}
	a.Printf(a.Out, "%s\n", inWords(answer.Value))
	return nil
}

// gateOfNothing is the gate of an approval at which nobody was seen to wait: whoever comes to wait while it is on its way is not meant by it.
const gateOfNothing = "nobody-waited"

// showApproval shows what is about to be approved, asks, and has exactly that approved: its gate goes along. A party that the caller named
// is not asked about; if another one waits, only the party goes along, and the engine refuses it.
func showApproval(ctx context.Context, a *app.App, api *client.Client, id string, o *verbOptions, body *client.ServingVerbRequest) error {
	v, err := readOne(ctx, api, id)
	if err != nil {
		return err
	}
	w := waitOf(v)
	if w == nil || w.Kind != serving.WaitApproval {
		if body.Party == "" {
			body.Gate = gateOfNothing // the engine says why there is nothing to approve
		}
		return nil
	}
	a.Printf(a.Err, "approve of serving %s, which waits for %s since %s\n", id, waitInWords(w), render.Clock(w.Since.Time, a.Now()))
	for _, line := range a.Drawing().Render(partyLines(a.Drawing(), v.Parties), render.Unbounded) {
		a.Printf(a.Err, "%s\n", line)
	}
	if body.Party != "" && body.Party != w.Party {
		return nil
	}
	named := body.Party != ""
	body.Gate = w.Gate
	if named || o.yes {
		return nil
	}
	return a.Agree(fmt.Sprintf("Approve %s?", render.OneLine(w.Party)), fmt.Sprintf("--party %s, --gate or --yes", render.OneLine(w.Party)))
}

// repeatedApproval are the flags that the same command needs again.
func repeatedApproval(body client.ServingVerbRequest) string {
	var flags strings.Builder
	if body.Party != "" {
		fmt.Fprintf(&flags, " --party %s", body.Party)
	}
	if body.Gate != "" {
		fmt.Fprintf(&flags, " --gate %s", body.Gate)
	}
	return flags.String()
}
