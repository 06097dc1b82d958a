package serving

import (
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/failure"
)

// MaxGroup is the maximum number of parties that one activity handles together.
const MaxGroup = 16

// IsOneGroup reports whether one activity can handle all parties of an operation: there are not too many, and they
// share one queue.
func (in Input) IsOneGroup() bool {
	return len(in.Parties) <= MaxGroup && !slices.ContainsFunc(in.Parties, func(p PartyTarget) bool {
		return p.Queue != in.Parties[0].Queue
	})
}

// GroupResult is how a step of several parties of one queue has ended, in the order of the request: the first party,
// then its others. A worker of an earlier build handles only the first party, and returns nothing.
type GroupResult struct {
	Parties []PartyOutcome `json:"parties"`
	// CreatePhase is set by a StepCreate: the phase that the parties' outcomes belong to.
	CreatePhase CreatePhase `json:"through,omitempty"`
}

// PartyOutcome is how the step has ended in one party. A party that has neither succeeded nor failed is executed again
// in an activity of its own.
type PartyOutcome struct {
	Done bool `json:"done,omitempty"`
	// Snapshot is the state of the party after a version was applied, if its worker knows everything that belongs to
	// it.
	Snapshot *DeploymentSnapshot `json:"seen,omitempty"`
	// Kind and Message are a final failure.
	Kind    failure.Kind `json:"kind,omitempty"`
	Message string       `json:"message,omitempty"`
	// SpentSeconds is the part of the deadline that is already used by a party that is executed again.
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
}

// OutcomeOf returns the outcome of the party at that index.
func (r GroupResult) OutcomeOf(place int) PartyOutcome {
	switch {
	case place < len(r.Parties):
		return r.Parties[place]
	case place == 0:
		return PartyOutcome{Done: true} // a worker of an earlier build
	}
	return PartyOutcome{}
}

// maxSummaryNames is the maximum number of parties that a summary names: Temporal accepts summaries of at most 400
// bytes by default (limit.userMetadataSummarySize), and fails a workflow task with a longer one.
const maxSummaryNames = 2

// SummaryNames returns the names of parties for a summary: "alice, bob and 3 more".
func SummaryNames(parties []PartyTarget) string {
	var names []string
	for _, p := range parties[:min(len(parties), maxSummaryNames)] {
		names = append(names, p.Name())
	}
	text := strings.Join(names, ", ")
	if more := len(parties) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
