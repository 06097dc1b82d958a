package rollout

import (
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
)

// gatedHelp explains how approve and promote make sure that the right step is meant.
const gatedHelp = `The command shows the step and asks for confirmation. Without a terminal, use --step, --gate or
--yes. If the rollout has moved on in the meantime, the engine rejects the command.`

// verbs returns the verbs in the order of the help.
func verbs(a *app.App) []noun.Verb[rollout.Status] {
	all := []noun.Verb[rollout.Status]{
		{Name: string(rollout.VerbApprove), Short: "Approve the waiting step",
			Long:          "Approve the step that waits for approval, or end a timed pause early. " + gatedHelp,
			ExampleReason: "the error rate is fine", Flags: gateFlags, Confirm: confirm(a, rollout.VerbApprove)},
		{Name: string(rollout.VerbPromote), Short: "Finish without further pauses and approvals",
			Long:          "Execute the remaining steps without pauses and approvals. " + gatedHelp,
			ExampleReason: "verified by hand", Flags: gateFlags, Confirm: confirm(a, rollout.VerbPromote)},
		{Name: string(rollout.VerbPause), Short: "Pause a rollout",
			Long: "Pause a rollout. A step that is replacing pods stops: pods already replaced remain, and no more are " +
				"replaced until it is resumed.",
			ExampleReason: "wait for the database team"},
		{Name: string(rollout.VerbResume), Short: "Resume a paused rollout",
			Long: "Resume a paused rollout. It continues where it stopped.", ExampleReason: "the database is ready"},
		{Name: string(rollout.VerbRollback), Short: "Go back to the stable version",
			Long: "Go back to the stable version: traffic first, then pods. This also works after the rollout was " +
				"stopped with --to frozen.",
			ExampleReason: "the error rate is up"},
		{Name: string(rollout.VerbStop), Short: "End a rollout: --to stable, new or frozen",
			Long: "End a rollout. --to stable (default) rolls back, --to new finishes now, --to frozen leaves pods and " +
				"traffic unchanged and releases the workload.",
			ExampleReason: "the release was cancelled", ExampleFlags: " --to stable", Flags: stopFlags,
			Check: func(body noun.VerbBody) error { return app.CheckOneOf("to", body.To, rollout.StopTos) }},
		{Name: string(rollout.VerbJump), Short: "Jump to another step: --to-step N",
			Long: "Jump to another step. A later step moves pods and traffic; an earlier step moves only traffic, " +
				"never pods.",
			ExampleReason: "skip the small steps", ExampleFlags: " --to-step 3", Flags: jumpFlags,
			Check: func(body noun.VerbBody) error {
				if body.ToStep < 1 {
					return app.Usagef("--to-step must be 1 or greater")
				}
				return nil
			}},
		{Name: string(rollout.VerbRetry), Short: "Retry a failed step, or restore the rollout's settings after drift",
			Long:          "Retry a failed step. After another client changed the workload, this restores the rollout's own settings.",
			ExampleReason: "the image has been pushed"},
	}
	for i := range all {
		flags := all[i].Flags
		all[i].Filter = url.Values{"phase": {string(rollout.PhaseProgressing), string(rollout.PhaseFailed)}}
		all[i].Flags = func(command *cobra.Command, body *noun.VerbBody) {
			command.Flags().IntVar(&body.Step, "step", 0, "the `step` that is meant; if the rollout is at another step, "+
				"the command is rejected (default: the current step)")
			if flags != nil {
				flags(command, body)
			}
		}
	}
	return all
}

func gateFlags(command *cobra.Command, body *noun.VerbBody) {
	body.ConfirmFlags(command, "step", "current step")
}

func stopFlags(command *cobra.Command, body *noun.VerbBody) {
	command.Flags().StringVar(&body.To, "to", "", "`state` in which to leave the workload: stable, new or frozen "+
		"(default: stable, if still possible)")
	app.FlagChoices(command, "to", rollout.StopTos...)
}

func jumpFlags(command *cobra.Command, body *noun.VerbBody) {
	command.Flags().IntVar(&body.ToStep, "to-step", 0, "the `step` to jump to, from 1")
}

// repeatWindow is how soon after an approval another one with --yes is rejected as a mistake: the same command twice
// would otherwise approve step 1 and, as soon as it waits, step 2.
const repeatWindow = 10 * time.Second

// confirm shows the step, asks for confirmation and sends the gate of this step. If the user named the step, it does
// not ask; if another step waits, it sends only the step, and the engine rejects it.
func confirm(a *app.App, verb rollout.Verb) func(rollout.Status, *noun.VerbBody) error {
	return func(s rollout.Status, body *noun.VerbBody) error {
		named := body.Step != 0
		if !named {
			body.Step = s.CurrentStepIndex
		}
		if s.WaitingFor != nil && body.Step == s.CurrentStepIndex {
			body.Gate = s.WaitingFor.Gate
		}
		a.Printf(a.Err, "%s step %d of %d of rollout %s", verb, s.CurrentStepIndex, len(s.Steps), keyOf(s))
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
		case body.Yes:
			return rejectQuickRepeat(a, verb, s)
		}
		title := "Approve"
		if verb == rollout.VerbPromote {
			title = "Promote from"
		}
		return a.RequireConfirmation(fmt.Sprintf("%s step %d?", title, s.CurrentStepIndex),
			fmt.Sprintf("--step %d, --gate or --yes", s.CurrentStepIndex))
	}
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
