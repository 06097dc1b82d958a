// Package rollout implements `slipway rollout`: start, watch, approve, roll back.
package rollout

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/strictyaml"
)

type rollouts = noun.Noun[client.RolloutSummary, client.Rollout]

// Command returns `slipway rollout`.
func Command(a *app.App) *cobra.Command {
	n := newNoun(a)
	command := &cobra.Command{
		Use: n.Command, Aliases: []string{"rollouts", "ro"},
		Short: "Release one workload step by step: canary or blue-green",
	}
	command.AddCommand(startCommand(n), validateCommand(a), listCommand(n),
		n.GetCommand("Show a rollout: its steps, split, wait and history", ""),
		n.WatchCommand("steps, split and wait",
			"While a rollout waits for user action, the command waits too, unless flags say otherwise.",
			"web -n shop --timeout 2h --exit-on-paused", n.Watch), waitCommand(n), historyCommand(n), undoCommand(n))
	for _, v := range verbs(a) {
		command.AddCommand(n.VerbCommand(v, func(s client.Rollout) string {
			return fmt.Sprintf("rollout %s is %s%s", keyOf(s), s.Phase, render.ReasonSuffix(s.Reason))
		}))
	}
	return command
}

var phases = []rollout.Phase{rollout.PhaseProgressing, rollout.PhaseFailed, rollout.PhaseHealthy,
	rollout.PhaseRolledBack, rollout.PhaseCancelled}

var calls = noun.Calls{List: apiclient.List((*client.Client).ListRollouts),
	Get:     apiclient.SpacedWith((*client.Client).GetRollout),
	History: apiclient.SpacedWith((*client.Client).GetRolloutHistory),
	Watch:   apiclient.SpacedWith((*client.Client).WatchRollout),
	Verbs: map[string]apiclient.Call{
		string(rollout.VerbApprove):  apiclient.SpacedBodyWith((*client.Client).ApproveRolloutWithBody),
		string(rollout.VerbPromote):  apiclient.SpacedBodyWith((*client.Client).PromoteRolloutWithBody),
		string(rollout.VerbPause):    apiclient.SpacedBodyWith((*client.Client).PauseRolloutWithBody),
		string(rollout.VerbResume):   apiclient.SpacedBodyWith((*client.Client).ResumeRolloutWithBody),
		string(rollout.VerbRollback): apiclient.SpacedBodyWith((*client.Client).RollbackRolloutWithBody),
		string(rollout.VerbStop):     apiclient.SpacedBodyWith((*client.Client).StopRolloutWithBody),
		string(rollout.VerbJump):     apiclient.SpacedBodyWith((*client.Client).JumpRolloutWithBody),
		string(rollout.VerbRetry):    apiclient.SpacedBodyWith((*client.Client).RetryRolloutWithBody)}}

func newNoun(a *app.App) *rollouts {
	var where app.ScopeFlags
	return &rollouts{
		App: a, Command: "rollout", Name: "rollout", Argument: "NAME", Scope: &where, Flags: where.Flags,
		Calls: calls, Example: "shop/web",
		Key:    func(r client.RolloutSummary) string { return r.Namespace + "/" + r.Name },
		Note:   func(r client.RolloutSummary) string { return string(r.Phase) },
		Titles: []string{"NAME", "STYLE", "PHASE", "WAITS FOR", "SINCE", "AGE", "CHANGE", "REASON"},
		Row: func(r client.RolloutSummary) []string {
			wait, since := waitColumns(a, r.Phase, r.WaitingFor)
			return []string{nameOfSummary(r).String(), string(r.Style), string(r.Phase),
				wait, since, a.Age(r.CreatedAt), r.Summary, r.Reason}
		},
		Empty: "No rollouts found.",
		Describe: func(_ string, s client.Rollout) error {
			a.Draw(DrawAll(a.Drawing(), s, follow.Footer(s.History, s.RefusalsDropped, s.Workflow)...))
			return nil
		},
		Release: noun.Release[rollout.Status]{Flags: watchHelp, ExitCodes: exitCodes, Ended: ended, ExitCode: exitCodeOf,
			Renderer: follow.Renderer[rollout.Status]{Fit: Fit, Changes: Changes, Summary: Summary}},
	}
}

func listCommand(n *rollouts) *cobra.Command {
	var inPhase, waitsFor []string
	var steps bool
	command := n.ListCommand("List the rollouts, newest first, each with its current or last release", func() error {
		inPhases, err := app.ParseOneOf("phase", inPhase, phases)
		waits, wrong := app.ParseOneOf("waiting-for", waitsFor, rollout.WaitKinds)
		n.Filter = url.Values{"phase": inPhases, "waitingFor": waits}
		if steps {
			showSteps(n)
		}
		return cmp.Or(err, wrong)
	})
	command.Example = `  slipway rollout list --waiting-for approval
  slipway rollout list -n shop --steps`
	f := command.Flags()
	f.StringSliceVar(&inPhase, "phase", nil, "list only rollouts in this `phase`; can be repeated: "+
		strictyaml.List(phases))
	f.StringSliceVar(&waitsFor, "waiting-for", nil,
		"list only rollouts that wait for this `kind` of event; can be repeated: "+strictyaml.List(rollout.WaitKinds))
	f.BoolVar(&steps, "steps", false, "also show step, traffic and pods; needs one request per rollout")
	app.FlagChoices(command, "phase", phases...)
	app.FlagChoices(command, "waiting-for", rollout.WaitKinds...)
	return command
}

// waitColumns returns what a rollout waits for and since when, or "". A failed rollout waits for a retry: it cannot be
// resumed.
func waitColumns(a *app.App, phase rollout.Phase, w *rollout.WaitingFor) (wait, since string) {
	switch {
	case w == nil:
		return "", ""
	case phase == rollout.PhaseFailed && w.Kind == rollout.WaitResume:
		return string(rollout.VerbRetry), a.Age(w.Since)
	}
	return string(w.Kind), a.Age(w.Since)
}

func nameOfSummary(r client.RolloutSummary) app.ObjectName {
	return app.ObjectName{Party: r.Party, Namespace: r.Namespace, Name: r.Name}
}

// showSteps adds columns to the list for which each rollout must be read.
func showSteps(n *rollouts) {
	statuses := map[app.ObjectName]rollout.Status{}
	n.ReadExtra = func(ctx context.Context, api *client.Client, items []client.RolloutSummary) error {
		for _, item := range items {
			of := *n
			of.Scope = &app.ScopeFlags{Party: item.Party}
			answer, err := of.Read(ctx, api, n.Key(item))
			if err != nil {
				return err
			}
			statuses[nameOfSummary(item)] = answer.Value
		}
		return nil
	}
	n.Titles = []string{"NAME", "STYLE", "PHASE", "STEP", "TRAFFIC", "NEW", "READY", "OF", "WAITS FOR", "SINCE"}
	n.Row = func(item client.RolloutSummary) []string {
		s := statuses[nameOfSummary(item)]
		traffic := ""
		wait, since := waitColumns(n.App, s.Phase, s.WaitingFor)
		if s.Traffic != nil && !routesRestored(s) {
			traffic = fmt.Sprintf("%d%%", s.Traffic.CanaryWeight)
			if len(s.Traffic.Matches) > 0 {
				traffic = "by match"
			}
		}
		return []string{keyOf(s), string(s.Style), string(s.Phase),
			stepColumn(s), traffic,
			fmt.Sprint(s.CanaryReplicas), fmt.Sprint(s.CanaryReadyReplicas), fmt.Sprint(s.Replicas), wait, since}
	}
}

// stepColumn returns the step as lists show it; "?" while the engine does not know it.
func stepColumn(s rollout.Status) string {
	if s.CurrentStepState == rollout.StateUnknown {
		return fmt.Sprintf("?/%d", len(s.Steps))
	}
	return fmt.Sprintf("%d/%d", s.CurrentStepIndex, len(s.Steps))
}

func historyCommand(n *rollouts) *cobra.Command {
	a := n.App
	command := noun.HistoryCommand(n, "releases", nil,
		[]string{"REVISION", "STARTED", "PHASE", "TOOK", "BY", "IMAGES", "POD TEMPLATE", "REPLACED", "WHY"},
		func(r client.RolloutRelease) []string {
			s := r.Rollout
			return []string{numberOf(s.Revision), render.Clock(s.CreatedAt, a.Now()), string(s.Phase),
				a.Elapsed(&s.CreatedAt, s.FinishedAt), r.Actor,
				strategy.ImageList(s.Images), s.CanaryRevision, replaced(r), reasonOf(r)}
		})
	command.Short = "List the releases of a rollout, newest first"
	command.Long =
		`List the current and past releases of a rollout, newest first. REVISION is the number of a release's version for
"slipway rollout undo --to-revision", and REPLACED is the version that it replaced. With -o json or yaml, each release
is printed completely, with its history of decisions.`
	command.Example = `  slipway rollout history shop/web --limit 5`
	return command
}

func numberOf(revision int64) string {
	if revision == 0 {
		return ""
	}
	return strconv.FormatInt(revision, 10)
}

// replaced returns the version that a release replaced, such as "2: app=registry/web:1".
func replaced(r client.RolloutRelease) string {
	images := strategy.ImageList(r.Rollout.StableImages)
	if number := numberOf(r.Replaced); number != "" {
		return strings.TrimSuffix(number+": "+images, ": ")
	}
	return images
}

// reasonOf returns the reason that the user gave, preceded by what an undo restored.
func reasonOf(r client.RolloutRelease) string {
	if r.Rollout.Undo == nil {
		return r.Reason
	}
	return r.Rollout.Undo.String() + render.ReasonSuffix(r.Reason)
}

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
			Long: "Retry a failed step. After another client changed the workload, this restores the rollout's own " +
				"settings.",
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
		if !named && s.CurrentStepState == rollout.StateUnknown {
			return fmt.Errorf("which step of rollout %s waits is not known now: %s; repeat the command, or name the "+
				"step with --step", keyOf(s), render.OneLine(s.Reason))
		}
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
