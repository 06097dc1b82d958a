package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/serving"
)

// The current details are part of the URL of the UI's renderer: they stay below about 4 KB.
const (
	maxDetailRows      = 12
	maxDetailDecisions = 3
	maxDetailCell      = 160
	maxDetailSteps     = 10
)

// page is a workflow's page in Temporal's UI, as Markdown: the state, what it waits for and since when, and the verbs
// that continue it.
type page struct{ strings.Builder }

func (p *page) printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// table shows at most maxDetailRows rows.
func (p *page) table(head string, rows []string) {
	if len(rows) == 0 {
		return
	}
	p.printf("| %s |\n|%s\n", head, strings.Repeat("---|", strings.Count(head, "|")+1))
	p.WriteString(strings.Join(rows[:min(len(rows), maxDetailRows)], ""))
	p.more(len(rows) - maxDetailRows)
	p.printf("\n")
}

// rowsOf returns a row for each element of a list. Those that table does not show are empty: pages are written often,
// and lists have up to a thousand elements.
func rowsOf[T any](list []T, row func(T) string) []string {
	rows := make([]string, len(list))
	for i, element := range list[:min(len(list), maxDetailRows)] {
		rows[i] = row(element)
	}
	return rows
}

func (p *page) more(hidden int) {
	if hidden > 0 {
		p.printf("\n… and %d more.\n", hidden)
	}
}

// payload shows example payloads as a block of code. Outside of one, the UI replaces quotes by typographic ones, which
// signals reject.
func (p *page) payload(examples ...string) {
	p.printf("\n```json\n%s\n```\n", strings.Join(append([]string{`{"actor":"you","reason":"why"}`}, examples...),
		"\n"))
}

// signals returns what lists a signal that a user may send, and the command for it.
func (p *page) signals(noun, name string) func(verb audit.Verb, effect string) {
	return func(verb audit.Verb, effect string) {
		p.printf("* `%s`: %s (`slipway %s %s %s`)\n", verb, effect, noun, verb, name)
	}
}

// latest shows the newest commands, including the answers to refused ones.
func (p *page) latest(history []audit.Entry) {
	if len(history) == 0 {
		return
	}
	p.printf("\nLatest decisions:\n\n")
	for i := len(history) - 1; i >= 0 && i >= len(history)-maxDetailDecisions; i-- {
		d := history[i]
		p.printf("* %s %s by %s (%s): **%s** — %s\n",
			phrase.Time(d.At), code(string(d.Verb), 60), phrase.Inert(d.Actor, 60), phrase.Inert(d.Via, maxVia),
			d.Outcome, phrase.Inert(d.Message, maxDetailCell))
	}
}

// code shows text of users as code, on one line.
func code(text string, most int) string {
	return "`" + phrase.Line(strings.ReplaceAll(text, "`", "'"), most) + "`"
}

// prose is phrase.Inert for a sentence that may contain a command outside of code: the UI's Markdown would turn two
// dashes into one.
func prose(text string, most int) string {
	return strings.ReplaceAll(phrase.Inert(text, most), "--", `\-\-`)
}

// taskDetails is the page of a task.
func taskDetails(t plan.Task, now time.Time) string {
	p := &page{}
	p.printf("## %s — plan %s\n\n%s\n\n", t.State, t.Plan, phrase.Inert(t.Reason, 600))
	if t.Comment != "" {
		p.printf("_%s_\n\n", phrase.Inert(t.Comment, 300))
	}
	p.services(t.Services)
	p.taskVerbs(t)
	p.latest(t.History)
	p.printf("\nAs of %s.\n", phrase.Time(now))
	return p.String()
}

// services lists running and failed services first, then pending ones.
func (p *page) services(services []plan.ServiceStatus) {
	counts := map[plan.ItemState]int{}
	var now, next []plan.ServiceStatus
	for _, s := range services {
		counts[s.State]++
		switch s.State {
		case plan.ItemRunning, plan.ItemFailed:
			now = append(now, s)
		case plan.ItemPending:
			next = append(next, s)
		}
	}
	p.printf("%d services: %d done, %d running, %d failed, %d waiting, %d skipped.\n\n", len(services),
		counts[plan.ItemSucceeded],
		counts[plan.ItemRunning], counts[plan.ItemFailed], counts[plan.ItemPending], counts[plan.ItemSkipped])
	p.table("service | does | priority | state | why", rowsOf(append(now, next...), func(s plan.ServiceStatus) string {
		return fmt.Sprintf("| %s | %s %s | %d | %s | %s |\n",
			s.ServiceID, s.Deployment, s.Method, s.Priority, s.State, phrase.Inert(s.Reason, maxDetailCell))
	}))
}

func (p *page) taskVerbs(t plan.Task) {
	send := func(signal, effect string) {
		p.printf("* Send the signal `%s` to %s, or run `slipway task %s %s`.\n", signal, effect, signal, t.ID)
	}
	const end = "end it once what runs has finished"
	switch t.State {
	case plan.TaskPending, plan.TaskRunning:
		if slices.ContainsFunc(t.Services, func(s plan.ServiceStatus) bool {
			return s.RollOut && s.State == plan.ItemRunning
		}) {
			p.printf("Rollouts release a service. They may wait for an approval: see `slipway rollout list`, or the " +
				"workflows `rollout/…`. Of the task you may:\n\n")
		} else {
			p.printf("No action is needed. You may:\n\n")
		}
		if t.WaitingFor != nil {
			send("approve", "begin now, with a reason")
		}
		send("pause", "hold the services that have not begun")
		send("stop", end)
	case plan.TaskPausing:
		send("resume", "cancel the pause")
		send("stop", end)
	case plan.TaskPaused, plan.TaskInterrupted:
		p.printf("**It waits for you:**\n\n")
		send("resume", "go on")
		send("stop", "end it")
	case plan.TaskStopping:
		p.printf("No action is needed: it ends once nothing runs.\n")
	default:
		p.printf("The task has ended. The report: `slipway task report %s`.\n", t.ID)
		return
	}
	p.printf("\nA signal's payload may stay empty, or say who you are and why:\n")
	p.payload()
	p.printf("\n*Request Cancellation* is `stop`: what runs finishes, nothing else begins.\n")
}

// itemDetails is the page of one service's release.
func itemDetails(in ServiceReleaseInput, s plan.ServiceStatus, interrupted bool) string {
	p := &page{}
	p.printf("## %s — %s service %s\n\n%s\n\n", s.State, s.Deployment, s.ServiceID, phrase.Inert(s.Reason, 600))
	rows := rowsOf(s.Workloads, func(w plan.WorkloadStatus) string {
		return fmt.Sprintf("| %s %s/%s (%s) | %s | %s |\n", w.Kind, w.Namespace, w.Name, w.Party, w.State,
			phrase.Inert(w.Message, maxDetailCell))
	})
	p.table("workload | state | what", rows)
	rolling := slices.ContainsFunc(s.Workloads, func(w plan.WorkloadStatus) bool {
		return w.Rollout != nil && w.State == plan.ItemRunning
	})
	switch {
	case rolling:
		p.rollouts(s.Workloads)
	case interrupted:
		p.printf("\n**Interrupted.** Fix the cause, then resume the task: `slipway task resume %s`, or the signal "+
			"`resume` on its workflow.\n", in.Task)
	default:
		p.printf("\nHow far its pods are: see Pending Activities.\n")
	}
	return p.String()
}

// rollouts lists the workflows of a service's rollouts, which take their approvals.
func (p *page) rollouts(workloads []plan.WorkloadStatus) {
	var rows []string
	for _, w := range workloads {
		if r := w.Rollout; r != nil && w.State == plan.ItemRunning {
			rows = append(rows, fmt.Sprintf("| `%s` |\n", rollout.WorkflowID(r.Party, r.Namespace, r.Name)))
		}
	}
	p.printf("\nEach workload has a rollout of its own: its workflow says what it waits for, and takes the " +
		"approval.\n\n")
	p.table("workflow", rows)
}

// outcomeTitles are the headings of rollouts that have ended: Temporal shows all but a failed one as Completed.
var outcomeTitles = map[rollout.Phase]string{
	rollout.PhaseHealthy:    "Released: the new version serves",
	rollout.PhaseRolledBack: "Rolled back: the stable version serves",
	rollout.PhaseCancelled:  "Stopped before its last step",
	rollout.PhaseFailed:     "Failed",
}

// rolloutDetails is the page of a rollout.
func rolloutDetails(s rollout.Status, now time.Time) string {
	p := &page{}
	if s.FinishedAt != nil {
		p.printf("# %s\n\n", outcomeTitles[s.Phase])
	}
	p.printf("## %s — %s %s/%s (%s, %s)\n\n%s\n\n",
		s.Phase, s.WorkloadRef.Kind, s.Namespace, s.WorkloadRef.Name, s.Style, s.Party, phrase.Inert(s.Reason, 500))
	if w := s.WaitingFor; w != nil {
		what, until := string(w.Kind), ""
		if s.Phase == rollout.PhaseFailed {
			what = "a decision" // it accepts retry, rollback or stop; resume would be refused
		}
		if w.Until != nil {
			until = ", until " + phrase.Time(*w.Until)
		}
		p.printf("Waits for **%s** since %s%s.\n\n", what, phrase.Time(w.Since), until)
	}
	p.printf("Step %d of %d, %s. %d of %d pods are new, %d of them ready.", s.CurrentStepIndex, len(s.Steps),
		s.CurrentStepState, s.CanaryReplicas, s.Replicas, s.CanaryReadyReplicas)
	if t := s.Traffic; t != nil {
		p.printf(" Traffic: %d%% new, %d%% stable", t.CanaryWeight, t.StableWeight)
		if len(t.Matches) > 0 {
			p.printf(", and requests that meet one of %d matches to new", len(t.Matches))
		}
		p.printf(".")
	}
	if s.FinalisingStep != "" {
		p.printf(" Finalising: %s.", s.FinalisingStep)
	}
	p.printf("\n\n")
	p.steps(s)
	p.rolloutVerbs(s)
	p.latest(s.History)
	p.printf("\nAs of %s.\n", phrase.Time(now))
	return p.String()
}

// steps shows the steps around the current one.
func (p *page) steps(s rollout.Status) {
	from := max(0, min(s.CurrentStepIndex-maxDetailSteps/2, len(s.Steps)-maxDetailSteps))
	to := min(len(s.Steps), from+maxDetailSteps)
	rows := make([]string, 0, maxDetailSteps)
	for _, step := range s.Steps[from:to] {
		traffic := step.Traffic
		if len(step.Matches) > 0 {
			traffic = fmt.Sprintf("%d matches", len(step.Matches))
		}
		rows = append(rows, fmt.Sprintf("| %d | %s | %s | %s | %s |\n",
			step.Index, phrase.Inert(step.Replicas.String(), 20), traffic, step.Pause, step.State))
	}
	p.table("step | pods | traffic | pause | state", rows)
	p.more(len(s.Steps) - len(rows))
}

// rolloutVerbs lists the signals to send in Temporal's UI, and the equivalent commands.
func (p *page) rolloutVerbs(s rollout.Status) {
	name := s.Namespace + "/" + s.Name
	if s.Party != "" && s.Party != catalog.DefaultParty {
		name += " --party " + s.Party
	}
	send := p.signals("rollout", name)
	if s.FinishedAt != nil {
		p.printf("The rollout has ended.\n")
		return
	}
	var kind rollout.WaitKind
	if s.WaitingFor != nil {
		kind = s.WaitingFor.Kind
	}
	drift := s.Phase == rollout.PhaseFailed || kind == rollout.WaitDrift
	if drift || kind == rollout.WaitApproval || kind == rollout.WaitResume {
		p.printf("**It waits for you.** Send one of these signals, with an empty payload or the one below:\n\n")
	} else {
		p.printf("No action is needed. You may send one of these signals:\n\n")
	}
	switch {
	case kind == rollout.WaitApproval:
		send(rollout.VerbApprove, "go on with the next step")
		send(rollout.VerbPromote, "go on and skip the pauses that are left")
	case kind == rollout.WaitWindow:
		send(rollout.VerbApprove, "begin now, with a reason and this gate: `"+s.WaitingFor.Gate+"`")
	case drift:
		send(rollout.VerbRetry, "try again, and overwrite the other client's changes")
	case kind == rollout.WaitResume:
		send(rollout.VerbResume, "go on")
	}
	if s.FinalisingStep == "" && kind != rollout.WaitResume && kind != rollout.WaitDrift {
		send(rollout.VerbPause, "hold it at this step")
	}
	send(rollout.VerbRollback, "go back to stable, traffic first")
	send(rollout.VerbStop, "end it: back at stable, or where the payload says")
	p.payload(`{"to":"new","actor":"you","reason":"for stop: stable, new or frozen"}`)
	p.printf("\n*Request Cancellation* rolls the rollout back, like `stop`. *Terminate* leaves pods and traffic " +
		"where they are.\n")
}

// servingDetails is the page of an operation on a serving.
func servingDetails(in serving.Input, m *serving.Machine) string {
	p := &page{}
	p.printf("## %s serving %s (generation %d): %s\n\n%s\n\n", in.Kind, in.ID, in.Generation, m.Stage(),
		prose(m.Message(), 500))
	p.servingVerbs(in, m)
	p.parties(in, m)
	if !m.Finished() && m.WaitingFor() == nil {
		p.toDo(in, m)
	}
	p.latest(m.Audit().Entries)
	p.printf("\nWhat the parties run: `slipway serving get %s`.\n", in.ID)
	return p.String()
}

// servingVerbs shows which approval or resume the operation waits for, and the signals and commands to send.
func (p *page) servingVerbs(in serving.Input, m *serving.Machine) {
	w := m.WaitingFor()
	if w == nil {
		return
	}
	before := ""
	if w.Party != "" {
		before = ", before party " + phrase.Inert(w.Party, 100) + " begins"
	}
	p.printf("Waits for **%s** since %s%s.\n\n", w.Kind, phrase.Time(w.Since.Time), before)
	p.printf("**It waits for you.** Send one of these signals, with an empty payload or the one below:\n\n")
	send := p.signals("serving", in.ID)
	if w.Kind == serving.WaitApproval {
		send(serving.VerbApprove, "let the party begin")
		send(serving.VerbPause, "hold it")
	} else {
		send(serving.VerbResume, "go on")
	}
	if in.Kind == serving.KindUpdate {
		send(serving.VerbStop, "every party goes back to the previous version")
	}
	p.payload()
	if in.Kind == serving.KindUpdate {
		p.printf("\n*Request Cancellation* is `stop`: every party goes back.\n")
	}
	p.printf("\n")
}

// parties lists the parties that are not done.
func (p *page) parties(in serving.Input, m *serving.Machine) {
	var left []int
	for i := range in.Parties {
		if !m.PartyProgress(i).Done() {
			left = append(left, i)
		}
	}
	p.printf("%d parties, %d of them done.\n\n", len(in.Parties), len(in.Parties)-len(left))
	p.table("party | state | since | why", rowsOf(left, func(i int) string {
		s := m.PartyProgress(i)
		does, since := s.Activity, ""
		switch {
		case !s.WorkerUnreachable && !s.ClusterUnreachable:
		case s.Until.IsZero():
			does = "**waited for**, as long as it takes"
		default:
			does = "**waited for** until " + phrase.Time(s.Until)
		}
		if !s.Since.IsZero() {
			since = phrase.Time(s.Since)
		}
		return fmt.Sprintf("| %s | %s | %s | %s |\n", phrase.Inert(in.Parties[i].Name(), 60), does, since,
			prose(s.Problem, maxDetailCell/2))
	}))
}

// toDo lists what the operator has to do so that the operation continues.
func (p *page) toDo(in serving.Input, m *serving.Machine) {
	var steps []string
	for i, party := range in.Parties {
		name := phrase.Inert(party.Name(), 60)
		switch s := m.PartyProgress(i); {
		case s.WorkerUnreachable:
			steps = append(steps, "start a worker of party "+name+": "+workerOf(party))
		case s.ClusterUnreachable:
			steps = append(steps, "check that the cluster of party "+name+" runs and that its worker can reach it")
		case s.Problem != "" && !s.Done():
			steps = append(steps, "fix what party "+name+" reports")
		}
	}
	if len(steps) == 0 {
		p.printf("No action is needed.")
	} else {
		if len(steps) > maxDetailDecisions {
			steps = append(steps[:maxDetailDecisions], "and so on")
		}
		p.printf("**What to do:**\n\n* %s\n\nIt then continues by itself: no signal is needed.",
			strings.Join(steps, "\n* "))
	}
	if in.Kind != serving.KindDelete {
		p.printf(" Another version supersedes it (`slipway serving update -f FILE`), and so does `slipway serving "+
			"delete %s`.", in.ID)
	}
	p.printf("\n")
}

// workerOf is the command that starts a party's worker, derived from its queue.
func workerOf(p serving.PartyTarget) string {
	switch p.Queue {
	case catalog.PartyQueue(catalog.DefaultParty):
		return "`slipway worker`"
	case catalog.PartyQueue(p.Domain):
		return "`slipway worker --party " + p.Domain + "`"
	}
	return "one that polls queue `" + p.Queue + "`"
}
