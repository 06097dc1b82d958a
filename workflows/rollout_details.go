package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
)

// listed leaves out the short waits for pods and traffic: each write is an event.
func (r *rolloutRun) listed() listing {
	s := r.machine.Status()
	now := listing{state: string(s.Phase)}
	w := s.WaitingFor
	short := w == nil || w.Kind == rollout.WaitTraffic || w.Kind == rollout.WaitPods && !r.machine.Stuck() || r.starting(s)
	if !short {
		now.waits, now.since, now.memo = string(w.Kind), w.Since, &Shown{State: now.state, Reason: s.Reason, WaitingFor: w}
	}
	return now
}

func (r *rolloutRun) details() string {
	return rolloutDetails(r.machine.Status(), workflow.Now(r.ctx).UTC().Truncate(time.Second))
}

// starting: it is being claimed, and the party is not known to be away.
func (r *rolloutRun) starting(s rollout.Status) bool {
	return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitParty && r.wanted.Activity() && !r.wanted.NoPickUpTimeout
}

// maxDetailSteps is how many steps the page of a rollout shows, around the current one.
const maxDetailSteps = 10

// rolloutDetails is the page of a rollout in the Temporal UI, as Markdown, below 4 KB: where it is, what it waits for, and how to go on.
func rolloutDetails(s rollout.Status, now time.Time) string {
	var b strings.Builder
	if s.FinishedAt != nil {
		fmt.Fprintf(&b, "# %s\n\n", outcomeWords[s.Phase])
	}
	fmt.Fprintf(&b, "## %s — %s %s/%s (%s, %s)\n\n%s\n\n", s.Phase, s.WorkloadRef.Kind, s.Namespace, s.WorkloadRef.Name, s.Style, s.Party, cell(s.Reason, 500))
	writeRolloutWait(&b, s)
	fmt.Fprintf(&b, "Step %d of %d, %s. %d of %d pods are new, %d of them ready.", s.CurrentStepIndex, len(s.Steps), s.CurrentStepState,
		s.CanaryReplicas, s.Replicas, s.CanaryReadyReplicas)
	if t := s.Traffic; t != nil {
		fmt.Fprintf(&b, " Traffic: %d%% new, %d%% stable", t.CanaryWeight, t.StableWeight)
		if len(t.Matches) > 0 {
			fmt.Fprintf(&b, ", and what meets one of %d matches to new", len(t.Matches))
		}
		b.WriteString(".")
	}
	if s.FinalisingStep != "" {
		fmt.Fprintf(&b, " Finalising: %s.", s.FinalisingStep)
	}
	b.WriteString("\n\n")
	writeRolloutSteps(&b, s)
	writeRolloutHowTo(&b, s)
	writeRolloutDecisions(&b, s.History)
	fmt.Fprintf(&b, "\nAs of %s.\n", now.Format(time.RFC3339))
	return b.String()
}

// outcomeWords begin the page of a rollout that is over: Temporal shows each but a failed one as Completed.
var outcomeWords = map[rollout.Phase]string{
	rollout.PhaseHealthy:    "Released: the new version serves",
	rollout.PhaseRolledBack: "Rolled back: the stable version serves",
	rollout.PhaseCancelled:  "Stopped before it was through",
	rollout.PhaseFailed:     "Failed",
}

func writeRolloutWait(b *strings.Builder, s rollout.Status) {
	w := s.WaitingFor
	if w == nil {
		return
	}
	what := string(w.Kind)
	if s.Phase == rollout.PhaseFailed {
		what = "a decision" // a resume would be refused: it takes retry, rollback or stop
	}
	fmt.Fprintf(b, "Waits for **%s** since %s", what, w.Since.UTC().Format(time.RFC3339))
	if w.Until != nil {
		fmt.Fprintf(b, ", until %s", w.Until.UTC().Format(time.RFC3339))
	}
	b.WriteString(".\n\n")
}

// writeRolloutSteps shows the steps around the current one.
func writeRolloutSteps(b *strings.Builder, s rollout.Status) {
	b.WriteString("| step | pods | traffic | pause | state |\n|---|---|---|---|---|\n")
	from := max(0, min(s.CurrentStepIndex-maxDetailSteps/2, len(s.Steps)-maxDetailSteps))
	to := min(len(s.Steps), from+maxDetailSteps)
	for _, step := range s.Steps[from:to] {
		traffic := step.Traffic
		if len(step.Matches) > 0 {
			traffic = fmt.Sprintf("%d matches", len(step.Matches))
		}
		fmt.Fprintf(b, "| %d | %s | %s | %s | %s |\n", step.Index, cell(step.Replicas.String(), 20), traffic, step.Pause, step.State)
	}
	if hidden := len(s.Steps) - (to - from); hidden > 0 {
		fmt.Fprintf(b, "\n… and %d more.\n", hidden)
	}
	b.WriteString("\n")
}

// writeRolloutHowTo says exactly what to send, in the Temporal UI and on the command line.
func writeRolloutHowTo(b *strings.Builder, s rollout.Status) {
	send := func(verb rollout.Verb, more, effect string) {
		name := s.Namespace + "/" + s.Name
		if s.Party != "" && s.Party != "default" {
			name += " --party " + s.Party
		}
		fmt.Fprintf(b, "* `%s`%s: %s (`slipway rollout %s %s`)\n", verb, more, effect, verb, name)
	}
	if s.FinishedAt != nil {
		b.WriteString("It is over.\n")
		return
	}
	kind := rollout.WaitKind("")
	if s.WaitingFor != nil {
		kind = s.WaitingFor.Kind
	}
	waits := "**It waits for you.** Send one of these signals, with an empty payload or the one below:\n\n"
	switch {
	case kind == rollout.WaitApproval:
		b.WriteString(waits)
		send(rollout.VerbApprove, "", "go on with the next step")
		send(rollout.VerbPromote, "", "go on and skip the pauses that are left")
	case s.Phase == rollout.PhaseFailed || kind == rollout.WaitDrift:
		b.WriteString(waits)
		send(rollout.VerbRetry, "", "try it again, ours put back")
	case kind == rollout.WaitResume:
		b.WriteString(waits)
		send(rollout.VerbResume, "", "go on")
	default:
		b.WriteString("It needs nobody. You may send one of these signals:\n\n")
	}
	if s.FinalisingStep == "" && kind != rollout.WaitResume && kind != rollout.WaitDrift {
		send(rollout.VerbPause, "", "hold it where it is")
	}
	send(rollout.VerbRollback, "", "go back to stable, traffic first")
	send(rollout.VerbStop, "", "end it: back at stable, or where the payload says")
	writePayload(b, `{"actor":"you","reason":"why"}`, `{"to":"new","actor":"you","reason":"for stop: stable, new or frozen"}`)
	b.WriteString("\n*Request Cancellation* rolls the rollout back, like `stop`. *Terminate* leaves pods and traffic where they are.\n")
}

// writePayload shows payloads as blocks of code: elsewhere the UI makes typographic quotes of them, which no signal takes.
func writePayload(b *strings.Builder, examples ...string) {
	fmt.Fprintf(b, "\n```json\n%s\n```\n", strings.Join(examples, "\n"))
}

// writeRolloutDecisions shows the latest commands; a refused one is answered here.
func writeRolloutDecisions(b *strings.Builder, history []audit.Entry) {
	if len(history) == 0 {
		return
	}
	b.WriteString("\nLatest decisions:\n\n")
	for i := len(history) - 1; i >= 0 && i >= len(history)-maxDetailDecisions; i-- {
		d := history[i]
		fmt.Fprintf(b, "* %s `%s` by %s (%s): **%s** — %s\n", d.At.UTC().Format(time.RFC3339), d.Verb, cell(d.Actor, 60), cell(d.Via, maxVia), d.Outcome, cell(d.Message, maxDetailCell))
	}
}
