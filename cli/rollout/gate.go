package rollout

import (
	"context"
	"fmt"
	"time"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
)

// repeatWindow is how soon after an approval another one with --yes counts as a slip of the hand: the same command twice would
// otherwise approve step 1 and, as soon as that waits, step 2.
const repeatWindow = 10 * time.Second

// approval is an approve or a promote that has yet to learn which step it means.
type approval struct {
	verb rollout.Verb
	name app.Name
	yes  bool
}

// showGate shows what is about to be approved, asks, and has exactly that approved: its gate goes along. A step that the caller named
// is not asked about; if another one waits, only the step goes along, and the engine refuses it.
func showGate(ctx context.Context, a *app.App, api *client.Client, what approval, body *client.RolloutVerbRequest) error {
	answer, err := readOne(ctx, api, what.name)
	if err != nil {
		return err
	}
	s := answer.Value
	named := body.Step != 0
	if !named {
		body.Step = s.CurrentStepIndex
	}
	if s.WaitingFor != nil && body.Step == s.CurrentStepIndex {
		body.Gate = s.WaitingFor.Gate
	}
	a.Printf(a.Err, "%s of step %d of %d of rollout %s", what.verb, s.CurrentStepIndex, len(s.Steps), keyOf(s))
	if s.WaitingFor != nil {
		a.Printf(a.Err, ", which waits for %s since %s", waitInWords(s.WaitingFor.Kind), render.Clock(s.WaitingFor.Since, a.Now()))
	}
	a.Printf(a.Err, "\n")
	for _, line := range a.Drawing().Render(splitLines(a.Drawing(), s), render.Unbounded) {
		a.Printf(a.Err, "  %s\n", line)
	}
	if named {
		return nil
	}
	if what.yes {
		return refuseRepeat(a, what.verb, s)
	}
	return a.Agree(fmt.Sprintf("%s step %d?", verbTitle(what.verb), s.CurrentStepIndex), fmt.Sprintf("--step %d, --gate or --yes", s.CurrentStepIndex))
}

// verbTitle begins a question with the verb.
func verbTitle(verb rollout.Verb) string {
	if verb == rollout.VerbPromote {
		return "Promote from"
	}
	return "Approve"
}

// refuseRepeat refuses to approve a step right after the one before it, when nobody has said which step is meant.
func refuseRepeat(a *app.App, verb rollout.Verb, s rollout.Status) error {
	for _, d := range s.History {
		if d.Verb != rollout.VerbApprove || d.Outcome != audit.Accepted || d.Step == 0 || d.Step >= s.CurrentStepIndex {
			continue
		}
		if ago := a.Now().Sub(d.At); ago < repeatWindow {
			return app.Usagef("step %d was approved %s ago, and step %d waits now: if you mean that one, %s it with --step %d",
				d.Step, render.ShortDuration(ago), s.CurrentStepIndex, verb, s.CurrentStepIndex)
		}
	}
	return nil
}
