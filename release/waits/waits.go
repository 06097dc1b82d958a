// Package waits classifies the time that a release spends waiting.
package waits

// Time is the kind of time that a release spends.
type Time string

// The kinds of time. Together they make up a release's age.
const (
	// Machine is spent on clusters and on Slipway: pods that start, traffic that moves, parties that are unreachable.
	Machine Time = "machine"
	// Human is spent on users: approvals, pauses, and decisions after a failure or a drift.
	Human Time = "human"
	// Planned is spent as configured: timed pauses between steps, release windows and freezes.
	Planned Time = "planned"
)

// Times are all kinds of time.
var Times = []Time{Machine, Human, Planned}

// Of returns the kind of time of a wait. waitingFor is the SlipwayWaitingFor of any kind of release; "" if it waits for
// nothing.
func Of(waitingFor string) Time {
	switch waitingFor {
	case "approval", "resume", "drift":
		return Human
	case "timer", "window":
		return Planned
	}
	return Machine
}
