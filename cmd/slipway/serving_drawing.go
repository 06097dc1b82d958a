package main

import (
	"fmt"
	"strings"
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// wholeServing draws all of the serving, where its parties are reached included, however wide and long that is.
func (d drawing) wholeServing(v serving.View) []string {
	lines := append(d.servingHeader(v), d.partyLines(v.Parties)...)
	if endpoints := endpointLines(v); len(endpoints) > 0 {
		lines = append(append(lines, line{}), endpoints...)
	}
	if op := v.Operation; op != nil && len(op.History) > 0 {
		lines = append(lines, line{}, line{{text: "what was decided"}})
		for _, decision := range op.History {
			lines = append(lines, line{{text: "  " + decision.At.Local().Format(time.DateTime) + "  " + servingDecision(decision)}})
		}
	}
	if op := v.Operation; op != nil && op.Workflow != nil {
		lines = append(lines, line{}, line{{text: oneLine(strings.TrimSpace("workflow " + op.Workflow.ID + "  " + op.Workflow.URL))}})
	}
	return d.render(lines, unbounded)
}

// fitServing draws as much of the serving as width columns and height lines hold: parties that have all that they are to have are left out first.
func (d drawing) fitServing(v serving.View, width, height int) []string {
	header := d.servingHeader(v)
	lines := append(header, d.partyLines(v.Parties)...)
	if len(lines) > height {
		var others []serving.PartyView
		for _, p := range v.Parties {
			if p.Phase != kuscia.PhaseAvailable {
				others = append(others, p)
			}
		}
		lines = append(header[:len(header):len(header)], d.partyLines(others)...)
		lines = append(lines, line{{text: "  … and " + countParties(len(v.Parties)-len(others)) + " Available", colour: dim}})
	}
	if rest := len(lines) - height; rest > 0 && height > 1 {
		lines = append(lines[:height-1:height-1], line{{text: fmt.Sprintf("  … and %d lines more", rest+1), colour: dim}})
	}
	return d.render(lines, width-1)
}

func countParties(n int) string {
	if n == 1 {
		return "1 party"
	}
	return fmt.Sprintf("%d parties", n)
}

func (d drawing) servingHeader(v serving.View) []line {
	lines := []line{
		{{text: oneLine(fmt.Sprintf("serving %s of %s, generation %d", v.ID, v.Initiator, v.Generation)), colour: bold}},
		{{text: servingState(v), colour: servingColour(v.Phase)}, {text: because(reasonAndMessage(v.Reason, v.Message))}},
	}
	text := operationInWords(v)
	if op := v.Operation; op != nil && !op.Done && op.StartedAt != nil {
		text += ", " + shortDuration(d.now().Sub(*op.StartedAt)) + " since it began"
	}
	if v.ServedGeneration != 0 && v.ServedGeneration != v.Generation {
		text += fmt.Sprintf("; generation %d serves", v.ServedGeneration)
	}
	if text != "" {
		lines = append(lines, line{{text: strings.TrimPrefix(text, "; "), colour: dim}})
	}
	return append(append(lines, d.servingWaitLines(v)...), line{})
}

// servingState is the state of a serving in a word or three.
func servingState(v serving.View) string {
	state := string(v.Phase)
	if v.DeletedAt != nil {
		state += ", being deleted"
	}
	return state
}

// operationInWords says what is being done, or was done last: "update of generation 3 runs".
func operationInWords(v serving.View) string {
	op := v.Operation
	if op == nil {
		return ""
	}
	end := "runs"
	switch {
	case op.Kind == serving.KindRefuse:
		return fmt.Sprintf("generation %d was refused", op.Generation)
	case op.Done && op.Reason != "":
		end = "failed"
	case op.Done:
		end = "is done"
	}
	return fmt.Sprintf("%s of generation %d %s", oneLine(op.Kind), op.Generation, end)
}

// reasonAndMessage is the word for it and the sentence, or what of the two there is.
func reasonAndMessage(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}

func servingColour(phase kuscia.Phase) colour {
	switch phase {
	case kuscia.PhaseAvailable:
		return green
	case kuscia.PhaseFailed:
		return red
	case kuscia.PhaseProgressing:
		return cyan
	case serving.ShownPending:
		return dim
	}
	return yellow
}

// partyKey is how people name a party: "alice", "alice/server".
func partyKey(p serving.PartyView) string {
	return oneLine(serving.PartyName(kuscia.Party{DomainID: p.Domain, Role: p.Role}))
}

// podsInWords reads "2 of 3 available, 1 new".
func podsInWords(p serving.PartyView) string {
	text := fmt.Sprintf("%d of %d available", p.AvailableReplicas, p.Replicas)
	if p.UpdatedReplicas != p.Replicas {
		text += fmt.Sprintf(", %d new", p.UpdatedReplicas)
	}
	return text
}

// partyLines are the parties, one on a line, with what is to be said of them.
func (d drawing) partyLines(parties []serving.PartyView) []line {
	name, state, pods := 0, 0, 0
	for _, p := range parties {
		name, state, pods = max(name, displayWidth(partyKey(p))), max(state, len(p.Phase)), max(pods, len(podsInWords(p)))
	}
	var lines []line
	for _, p := range parties {
		lines = append(lines, line{
			{text: "  " + padded(partyKey(p), name+3)}, {text: padded(string(p.Phase), state+3), colour: servingColour(p.Phase)},
			{text: padded(podsInWords(p), pods+3)}, {text: oneLine(partyTrouble(p)), colour: dim},
		})
	}
	return lines
}

// partyTrouble is why a party does not serve as it should.
func partyTrouble(p serving.PartyView) string {
	if p.Queue == "" {
		return "nobody knows this party"
	}
	return reasonAndMessage(p.Reason, p.Message)
}

// endpointLines say where the parties are reached.
func endpointLines(v serving.View) []line {
	rows := newTable("PARTY", "PORT", "SCOPE", "ENDPOINT", "LISTENS ON")
	any := false
	for _, p := range v.Parties {
		for _, e := range p.Endpoints {
			any = true
			rows.add(partyKey(p), e.PortName, e.Scope, e.Endpoint, fmt.Sprint(e.Port))
		}
	}
	if !any {
		return nil
	}
	var lines []line
	for row := range strings.Lines(rows.String()) {
		lines = append(lines, line{{text: "  " + strings.TrimRight(row, "\n")}})
	}
	return lines
}
