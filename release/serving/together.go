package serving

import "slipway.io/slipway/release/failure"

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
