package render

import "slipway.io/slipway/release/rollout"

// WaitText returns what a release waits for, as in "waiting for approval".
func WaitText(kind rollout.WaitKind) string {
	switch kind {
	case rollout.WaitApproval:
		return "approval"
	case rollout.WaitTimer:
		return "the pause to end"
	case rollout.WaitWindow:
		return "a release window"
	case rollout.WaitPods:
		return "pods"
	case rollout.WaitTraffic:
		return "routes to take effect"
	case rollout.WaitParty:
		return "the party's cluster"
	case rollout.WaitDrift:
		return "a decision about a change by another client"
	case rollout.WaitResume:
		return "user action"
	}
	return string(kind)
}
