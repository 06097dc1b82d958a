package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/serving"
)

// servingVerb says what one of the commands that steer the operation on a serving does.
type servingVerb struct {
	verb        serving.Verb
	short, long string
	// because is the reason that the example gives.
	because string
	call    func(ctx context.Context, api *client.Client, id string, body client.ServingVerbRequest) (*http.Response, error)
}

// servingVerbs are the verbs in the order in which people need them.
var servingVerbs = []servingVerb{
	{verb: serving.VerbApprove, short: "Have the next party of an update begin", because: "alice's numbers are good",
		long: "Have the party begin that waits for an approval, where the serving's policy has approval: betweenParties. What is approved is shown, and only that: when the update has moved on meanwhile, the approval is refused.",
		call: func(ctx context.Context, api *client.Client, id string, body client.ServingVerbRequest) (*http.Response, error) {
			return api.ApproveServing(ctx, id, &client.ApproveServingParams{SlipwayVia: via()}, body)
		}},
	{verb: serving.VerbPause, short: "Hold the operation on a serving", because: "wait for the database team",
		long: "Hold the operation on a serving. What has begun goes on; no other party begins until it is resumed.",
		call: func(ctx context.Context, api *client.Client, id string, body client.ServingVerbRequest) (*http.Response, error) {
			return api.PauseServing(ctx, id, &client.PauseServingParams{SlipwayVia: via()}, body)
		}},
	{verb: serving.VerbResume, short: "Go on with a paused operation", because: "the database is ready",
		long: "Go on with an operation that was paused.",
		call: func(ctx context.Context, api *client.Client, id string, body client.ServingVerbRequest) (*http.Response, error) {
			return api.ResumeServing(ctx, id, &client.ResumeServingParams{SlipwayVia: via()}, body)
		}},
	{verb: serving.VerbStop, short: "Take an update back in all parties", because: "alice's numbers are bad",
		long: "Take an update back: every party goes back to the version of before, since an update is all or nothing. A creation has none, and is refused: delete the serving instead.",
		call: func(ctx context.Context, api *client.Client, id string, body client.ServingVerbRequest) (*http.Response, error) {
			return api.StopServing(ctx, id, &client.StopServingParams{SlipwayVia: via()}, body)
		}},
}

func (a *app) servingVerbCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range servingVerbs {
		commands = append(commands, a.servingVerbCommand(v))
	}
	return commands
}

// servingVerbOptions are what a person says along with a verb.
type servingVerbOptions struct {
	person who
	body   client.ServingVerbRequest
	output string
}

func (a *app) servingVerbCommand(v servingVerb) *cobra.Command {
	options := &servingVerbOptions{}
	command := &cobra.Command{
		Use:               string(v.verb) + " ID",
		Short:             v.short,
		Long:              v.long + " A refusal says why, and the exit code is 1.",
		Example:           fmt.Sprintf("  slipway serving %s serving-01 --reason %q", v.verb, v.because),
		Args:              exactName("a serving", "ID"),
		ValidArgsFunction: a.complete(servingIDs),
		RunE:              func(c *cobra.Command, args []string) error { return a.sendServingVerb(c, v, args[0], options) },
	}
	clientFlags(command)
	outputFlag(command, &options.output)
	options.person.flags(command)
	f := command.Flags()
	f.StringVar(&options.body.Key, "key", "", "idempotency `key`: the same key again is the same command (default: a random one)")
	if v.verb == serving.VerbApprove {
		f.StringVar(&options.body.Party, "party", "", "the `party` that it is meant for; another one is refused (default: the one that waits)")
		f.StringVar(&options.body.Gate, "gate", "", "waitingFor.gate as it was seen earlier; a stale one is refused (default: read now)")
	}
	return command
}

func (a *app) sendServingVerb(c *cobra.Command, v servingVerb, id string, o *servingVerbOptions) error {
	api, err := a.connectToWrite(c)
	if err != nil {
		return err
	}
	body := o.body
	body.Actor, body.Reason, body.Key = o.person.name(), o.person.reason, keyOrRandom(body.Key)
	if v.verb == serving.VerbApprove && body.Gate == "" {
		if err := a.showApproval(c.Context(), api, id, &body); err != nil {
			return err
		}
	}
	answer, err := read[client.Serving](v.call(c.Context(), api, id, body))
	if outcomeUnknown(err) {
		a.printf(a.err, "Whether the command arrived is not known. Repeated with the same key it counts once:\n  slipway serving %s %s%s --key %s\n",
			v.verb, id, repeatedApproval(body), body.Key)
	}
	if err != nil {
		return err
	}
	if done, err := a.printObject(o.output, answer.raw); done || err != nil {
		return err
	}
	a.printf(a.out, "%s\n", servingInWords(answer.value))
	return nil
}

// gateOfNothing is the gate of an approval at which nobody was seen to wait: whoever comes to wait while it is on its way is not meant by it.
const gateOfNothing = "nobody-waited"

// showApproval says what is about to be approved, and has exactly that approved: its gate goes along.
func (a *app) showApproval(ctx context.Context, api *client.Client, id string, body *client.ServingVerbRequest) error {
	v, err := readServing(ctx, api, id)
	if err != nil {
		return err
	}
	w := waitOf(v)
	if w == nil || w.Kind != serving.WaitApproval {
		body.Gate = gateOfNothing // the engine says why there is nothing to approve
		return nil
	}
	body.Gate = w.Gate
	a.printf(a.err, "approve of serving %s, which waits for %s since %s\n", id, servingWaitInWords(w), clock(w.Since.Time, a.now()))
	for _, line := range a.drawing().render(a.drawing().partyLines(v.Parties), unbounded) {
		a.printf(a.err, "%s\n", line)
	}
	return nil
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
