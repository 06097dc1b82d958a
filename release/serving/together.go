package serving

import (
	"fmt"
	"strings"

	"slipway.io/slipway/release/failure"
)

// TogetherResult is how a step of several parties of one queue has ended, in the order of the request: the first one, then its others. A worker of an
// earlier build takes the step of the first one only, and answers nothing.
type TogetherResult struct {
	Parties []PartyOutcome `json:"parties"`
}

// PartyOutcome is how one of them has ended. One that is neither done nor has failed is to be asked alone.
type PartyOutcome struct {
	Done bool `json:"done,omitempty"`
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
