package render

import "slipway.io/slipway/release/rollout"

// WaitInWords is what a release waits for, as in "waits for an approval".
func WaitInWords(kind rollout.WaitKind) string {
	switch kind {
	case rollout.WaitApproval:
		return "an approval"
	case rollout.WaitTimer:
		return "its pause to end"
	case rollout.WaitWindow:
		return "a release window"
	case rollout.WaitPods:
		return "pods"
	case rollout.WaitTraffic:
		return "routes to take effect"
	case rollout.WaitParty:
		return "the party's cluster"
	case rollout.WaitDrift:
		return "a decision: somebody else has changed what is released"
	case rollout.WaitResume:
		return "a person"
	}
	return string(kind)
}
