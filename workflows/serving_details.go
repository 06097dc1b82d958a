package workflows

import (
	"fmt"
	"strings"
	"time"

	"slipway.io/slipway/release/catalog"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// servingDetails is the page of an operation in the Temporal UI, as Markdown, below 4 KB: where it is, what it waits for since when, and what to do.
func servingDetails(in serving.Input, m *serving.Machine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s serving %s (generation %d): %s\n\n%s\n\n", in.Kind, in.ID, in.Generation, m.Stage(), prose(m.Says(), 500))
	writeServingHowTo(&b, in, m)
	writeServingParties(&b, in, m)
	if !m.Over() && m.WaitingFor() == nil {
		writeServingToDo(&b, in, m)
	}
	writeServingDecisions(&b, m.History())
	fmt.Fprintf(&b, "\nWhat the parties run: `slipway serving get %s`.\n", in.ID)
	return b.String()
}

// writeServingParties lists the parties that something is left to do in, as far as there is room.
func writeServingParties(b *strings.Builder, in serving.Input, m *serving.Machine) {
	var rows []string
	for i, p := range in.Parties {
		s := m.Standing(i)
		if s.Done() {
			continue
		}
		since := ""
		if !s.Since.IsZero() {
			since = s.Since.UTC().Format(time.RFC3339)
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |\n", cell(p.Name(), 60), servingState(s), since, prose(s.Trouble, maxDetailCell/2)))
	}
	fmt.Fprintf(b, "%d parties, %d of them done.\n\n", len(in.Parties), len(in.Parties)-len(rows))
	if len(rows) == 0 {
		return
	}
	b.WriteString("| party | state | since | why |\n|---|---|---|---|\n")
	b.WriteString(strings.Join(rows[:min(len(rows), maxDetailRows)], ""))
	if hidden := len(rows) - maxDetailRows; hidden > 0 {
		fmt.Fprintf(b, "\n… and %d more.\n", hidden)
	}
	b.WriteString("\n")
}

// servingState is what a party does, or that it is waited for, and how long.
func servingState(s serving.Standing) string {
	switch {
	case !s.Away && !s.Lost:
		return s.Does
	case s.Until.IsZero():
		return "**waited for**, as long as it takes"
	}
	return "**waited for** until " + s.Until.UTC().Format(time.RFC3339)
}

// writeServingToDo says exactly what a person does so that it goes on.
func writeServingToDo(b *strings.Builder, in serving.Input, m *serving.Machine) {
	said := 0
	for i, p := range in.Parties {
		s := m.Standing(i)
		text := ""
		switch {
		case s.Away:
			text = "start a worker of party " + cell(p.Name(), 60) + ": " + workerOf(p)
		case s.Lost:
			text = "look whether the worker of party " + cell(p.Name(), 60) + " reaches its cluster, and whether that runs"
		case s.Trouble != "" && !s.Done():
			text = "mend what party " + cell(p.Name(), 60) + " says"
		default:
			continue
		}
		if said == 0 {
			b.WriteString("**What to do:**\n\n")
		}
		if said++; said > maxDetailDecisions {
			b.WriteString("* and so on\n")
			break
		}
		fmt.Fprintf(b, "* %s\n", text)
	}
	if said == 0 {
		b.WriteString("It needs nobody.")
	} else {
		b.WriteString("\nIt then goes on by itself: nothing need be sent to it.")
	}
	if in.Kind != serving.KindDelete {
		fmt.Fprintf(b, " Another version takes its place (`slipway serving update -f FILE`), and so does `slipway serving delete %s`.", in.ID)
	}
	b.WriteString("\n")
}

// workerOf is the command that starts a party's worker, as far as its queue tells.
func workerOf(p serving.PartyTarget) string {
	switch p.Queue {
	case catalog.PartyQueue(catalog.DefaultParty):
		return "`slipway worker`"
	case catalog.PartyQueue(p.Domain):
		return "`slipway worker --party " + p.Domain + "`"
	}
	return "one that polls queue `" + p.Queue + "`"
}

// prose is cell for a sentence that may name a command outside of code: the UI's Markdown would make one dash of two.
func prose(text string, most int) string {
	return strings.ReplaceAll(cell(text, most), "--", `\-\-`)
}

// writeServingHowTo says whom it waits for since when, and exactly what to send, in the Temporal UI and on the command line.
func writeServingHowTo(b *strings.Builder, in serving.Input, m *serving.Machine) {
	w := m.WaitingFor()
	if w == nil {
		return
	}
	fmt.Fprintf(b, "Waits for **%s** since %s", w.Kind, w.Since.UTC().Format(time.RFC3339))
	if w.Party != "" {
		fmt.Fprintf(b, ", before party %s begins", cell(w.Party, 100))
	}
	b.WriteString(".\n\n**It waits for you.** Send one of these signals, with an empty payload or the one below:\n\n")
	send := func(verb serving.Verb, effect string) {
		fmt.Fprintf(b, "* `%s`: %s (`slipway serving %s %s`)\n", verb, effect, verb, in.ID)
	}
	if w.Kind == serving.WaitApproval {
		send(serving.VerbApprove, "have the party begin")
		send(serving.VerbPause, "hold it")
	} else {
		send(serving.VerbResume, "go on")
	}
	if in.Kind == serving.KindUpdate {
		send(serving.VerbStop, "every party goes back to the version of before")
	}
	writePayload(b, `{"actor":"you","reason":"why"}`)
	if in.Kind == serving.KindUpdate {
		b.WriteString("\n*Request Cancellation* is `stop`: every party goes back.\n")
	}
	b.WriteString("\n")
}

// writeServingDecisions shows the latest commands; a refused one is answered here.
func writeServingDecisions(b *strings.Builder, history []kuscia.AuditEntry) {
	if len(history) == 0 {
		return
	}
	b.WriteString("\nLatest decisions:\n\n")
	for i := len(history) - 1; i >= 0 && i >= len(history)-maxDetailDecisions; i-- {
		d := history[i]
		fmt.Fprintf(b, "* %s `%s` by %s (%s): **%s** — %s\n", d.At.UTC().Format(time.RFC3339), d.Verb, cell(d.Actor, 60), cell(d.Via, maxVia), d.Outcome, cell(d.Message, maxDetailCell))
	}
}
