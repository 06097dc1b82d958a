package serving

import (
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/failure"
)

// MostTogether is how many parties take a step by one activity at most.
const MostTogether = 16

// IsOneGroup says that one activity can be for all parties of an operation: they are not too many, and have one queue.
func (in Input) IsOneGroup() bool {
	return len(in.Parties) <= MostTogether && !slices.ContainsFunc(in.Parties, func(p PartyTarget) bool { return p.Queue != in.Parties[0].Queue })
}

// TogetherResult is how a step of several parties of one queue has ended, in the order of the request: the first one, then its others. A worker of an
// earlier build takes the step of the first one only, and answers nothing.
type TogetherResult struct {
	Parties []PartyOutcome `json:"parties"`
	// Through, of a StepCreate, says of which of its steps the parties' outcomes are.
	Through Through `json:"through,omitempty"`
}

// PartyOutcome is how one of them has ended. One that is neither done nor has failed is to be asked alone.
type PartyOutcome struct {
	Done bool `json:"done,omitempty"`
	// Seen is what the party runs when it has been brought to a version, if its worker knows of everything that belongs to it.
	Seen *Seen `json:"seen,omitempty"`
	// Kind and Message are a failure that is final.
	Kind    failure.Kind `json:"kind,omitempty"`
	Message string       `json:"message,omitempty"`
	// SpentSeconds is how much of its deadline one has used that is to be asked alone.
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
}

// Of is how the party at that place has ended.
func (r TogetherResult) Of(place int) PartyOutcome {
	switch {
	case place < len(r.Parties):
		return r.Parties[place]
	case place == 0:
		return PartyOutcome{Done: true} // a worker of an earlier build
	}
	return PartyOutcome{}
}

// mostNames is how many parties a summary names: Temporal takes summaries of at most 400 bytes by default (limit.userMetadataSummarySize), and fails a workflow task with
// a longer one.
const mostNames = 2

// Names is how a summary calls parties: "alice, bob and 3 more".
func Names(parties []PartyTarget) string {
	var names []string
	for _, p := range parties[:min(len(parties), mostNames)] {
		names = append(names, p.Name())
	}
	text := strings.Join(names, ", ")
	if more := len(parties) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
