// Package waits says on whom a release's time is spent.
package waits

// Time is on whom time is spent.
type Time string

// The kinds of time. Together they are a release's age.
const (
	// Machine is spent by clusters and by Slipway: pods that start, traffic that moves, parties that are out of reach.
	Machine Time = "machine"
	// Human is spent by people: approvals, and what somebody has paused, or has to decide after a failure or somebody else's change.
	Human Time = "human"
	// Planned is spent because the release was asked to: rests between steps, release windows and freezes.
	Planned Time = "planned"
)

// Times are all kinds of time.
var Times = []Time{Machine, Human, Planned}

// Of is the time that passes while a release waits for this, the SlipwayWaitingFor of any kind of release; "" is for nothing.
func Of(waitingFor string) Time {
	switch waitingFor {
	case "approval", "resume", "drift":
		return Human
	case "timer", "window":
		return Planned
	}
	return Machine
}
