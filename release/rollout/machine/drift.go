package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// routeRestore is a change by another client to what routes to the workload, while it is being reverted.
type routeRestore struct {
	Seen rollout.Observed `json:"seen"`
	// Pinned and Routed are true once that part has been restored.
	Pinned bool `json:"pinned,omitempty"`
	Routed bool `json:"routed,omitempty"`
}

// Observed takes a hint that another client has changed something. The pods are inspected when the step pauses, and
// before Services or routes wait for pods that the change may have removed. Several hints cause one inspection. A hint
// about an object of another release is ignored.
func (m *Machine) Observed(o rollout.Observed, now time.Time) {
	if !m.Heeds(o) {
		return
	}
	m.recordProtection(o, now)
	if m.s.Redeclared != "" && o.What != rollout.ObservedRoutes { // check again what the workload declares
		m.recheckDeclared()
		return
	}
	switch {
	case !m.inSteps():
		return
	case o.What == rollout.ObservedRoutes:
		m.startRouteRestore(o)
		return
	case !m.s.MoveStarted:
		return
	}
	m.s.ChangeObserved = true
	if o.What == rollout.ObservedSettings && !m.disputed() {
		m.s.ChangeObserved = m.countRestore(o, true, now)
	}
	m.observedWhileHeld(o, now)
}

// observedWhileHeld settles the pods again if an operator holds the rollout: a held step cannot be inspected like one
// that is done. A deleted extra Deployment is created again only when the release continues.
func (m *Machine) observedWhileHeld(o rollout.Observed, now time.Time) {
	held := m.s.Trouble != nil || m.s.Status.Paused && m.s.Status.CurrentStepState != rollout.StatePaused
	if held && o.What == "deleted" && o.Object == m.workloadName()+strategy.CanarySuffix {
		m.notePolicy(rollout.VerbPause, o.Message+": it is created again when the release continues", now)
	}
	if o.What == rollout.ObservedSettings && !m.disputed() {
		m.s.PodsUnsettled = m.s.PodsUnsettled || held && m.s.ChangeObserved
	}
}

// Heeds reports whether a hint is about this release's workload, its extra Deployment, or another object that it has
// borrowed.
func (m *Machine) Heeds(o rollout.Observed) bool {
	if o.Claim == "" && o.Object == "" {
		return true
	}
	ours := o.Object == m.workloadName() || o.Object == m.workloadName()+strategy.CanarySuffix
	switch o.What {
	case rollout.ObservedRoutes, rollout.ObservedUnpinned, rollout.ObservedUnrouted:
		ours = m.usesRoute(o.Object)
	case rollout.ObservedSettings:
		ours = ours || strings.HasPrefix(o.Object, "HorizontalPodAutoscaler "+m.setup.Spec.Namespace+"/")
	}
	return ours && o.Claim == m.setup.Claim
}

// usesRoute reports whether the release's routings use or create an object ("Service shop/order").
func (m *Machine) usesRoute(object string) bool {
	kind, name, _ := strings.Cut(object, " "+m.setup.Spec.Namespace+"/")
	return slices.ContainsFunc(m.setup.Spec.Strategy.Routings, func(r strategy.Routing) bool {
		switch kind {
		case "Service":
			return name == r.Service || name == r.CanaryService()
		case "Ingress":
			return r.Ingress != nil && name == r.Ingress.Name+strategy.CanarySuffix
		case "HTTPRoute":
			if name == r.HTTPRoute {
				return true
			}
		}
		return slices.ContainsFunc(r.Custom, func(c strategy.ObjectRef) bool {
			return c.Kind == kind && c.Name == name
		})
	})
}

// Restorations returns how often the release has reverted a change by another client.
func (m *Machine) Restorations() int { return m.s.Restorations }

// countRestore logs that a change by another client is reverted. If that happens more than rollout.MaxRestores times at
// one step, it holds the rollout instead and returns false.
func (m *Machine) countRestore(o rollout.Observed, pods bool, now time.Time) bool {
	m.s.RestoreCount++
	m.s.Restorations++
	by := cmp.Or(o.By, "unknown")
	m.note(rollout.Command{Verb: VerbRestored, Actor: by, Via: "kubernetes"}, audit.Accepted, o.Message+": restored",
		now)
	if m.s.RestoreCount <= rollout.MaxRestores {
		return true
	}
	m.s.ApprovedVisit = 0
	if m.s.Trouble == nil {
		what := "make it leave these fields alone"
		if !pods {
			what = "make it leave this release's Services and routes alone"
		}
		m.s.Trouble = &trouble{Kind: failure.Drift, Pods: pods, Message: fmt.Sprintf(
			"%s for the %dth time at this step (field manager %s): %s", o.Message, m.s.RestoreCount, by, what)}
	}
	return false
}

// recordProtection records what the party's worker has restored by itself so that no Service selects zero ready pods.
// The rollout may have pinned or routed since, so the state is uncertain then.
func (m *Machine) recordProtection(o rollout.Observed, now time.Time) {
	switch {
	case o.What == rollout.ObservedUnpinned && m.s.Pinned == yes:
		m.s.Pinned = maybe
	case o.What == rollout.ObservedUnrouted && m.s.Routed == yes:
		m.s.Routed = maybe
		m.s.Status.Traffic = &rollout.TrafficStatus{StableWeight: 100}
	default:
		return
	}
	m.notePolicy(verbRerouted, o.Message, now)
}

// startRouteRestore reverts a change of what routes to the workload at once, if any of that is this release's now.
// After rollout.MaxRestores changes an operator has to decide.
func (m *Machine) startRouteRestore(o rollout.Observed) {
	ours := m.s.Pinned == yes || m.s.Routed == yes
	if !ours || m.disputed() || m.s.RestoreCount > rollout.MaxRestores {
		return
	}
	m.s.RouteRestore = &routeRestore{Seen: o}
}

// disputed reports whether a change by another client waits for an operator already, or the workload no longer belongs
// to this release.
func (m *Machine) disputed() bool {
	return m.s.Trouble != nil && (m.s.Trouble.Kind == failure.Drift || workloadLost(m.s.Trouble.Kind))
}

// nextRouteRestore returns the next write that reverts a change of Services and routes; false: nothing is to be
// reverted.
func (m *Machine) nextRouteRestore() (Action, bool) {
	back := m.s.RouteRestore
	var a Action
	switch {
	case back == nil:
		return Action{}, false
	case m.disputed():
		m.s.RouteRestore = nil
		return Action{}, false
	case m.s.Pinned == yes && !back.Pinned:
		a, _ = m.routeOnly(rollout.RoutePin)
	// the party's worker may have restored the routes because no pod served any more
	case m.s.Routed != no && m.s.LastTraffic != nil && !back.Routed:
		a = m.route(rollout.RouteEnsure, *m.s.LastTraffic)
	default:
		m.s.RouteRestore = nil
		return Action{}, false
	}
	a.restores, a.Route.Overwrite, a.Route.Restores = true, true, true
	a.Summary = m.position() + ": revert a change by another client"
	a.reason = fmt.Sprintf("%s: %s: reverting it", m.position(), back.Seen.Message)
	return a, true
}

// routesRestored records what was reverted, if anything had changed.
func (m *Machine) routesRestored(a Action, r rollout.RouteResult, now time.Time) {
	m.startGrace(r, now)
	if r.MissingPods == "" {
		m.recordRoutes(a, r)
	} else {
		m.lacksPods(a)
	}
	back := m.s.RouteRestore
	if back == nil {
		return
	}
	back.Pinned = back.Pinned || a.Route.Action == rollout.RoutePin
	back.Routed = back.Routed || a.Route.Action == rollout.RouteEnsure
	if r.Modified && back.Seen.What != "" && !m.countRestore(back.Seen, false, now) {
		m.s.RouteRestore = nil
	}
}

// lacksPods leaves to the step what could not be restored without its pods. They are inspected first.
func (m *Machine) lacksPods(a Action) {
	if a.Route.Action == rollout.RoutePin {
		m.s.Pinned = maybe
	} else {
		m.s.Routed = maybe
	}
	m.s.ChangeObserved = m.s.ChangeObserved || m.s.MoveStarted && m.inSteps()
}

// inspectsFirst reports whether a change of the workload by another client is inspected before the traffic is handled.
// Not if a retry is to overwrite that change.
func (m *Machine) inspectsFirst() bool {
	at := m.s.Status.CurrentStepState
	return m.stepRoutes() && m.s.Trouble == nil && !m.s.Status.Paused && !m.s.OverwriteDrift &&
		(at == rollout.StateBeforeUpgrade || at == rollout.StateTrafficRouting)
}

// startInspection asks for an inspection of the pods if a hint came and the step pauses, or is about to handle the
// traffic.
func (m *Machine) startInspection() bool {
	again := m.s.ChangeObserved && m.s.Recheck == recheckNone &&
		(m.inspectsFirst() || m.s.Status.CurrentStepState == rollout.StatePaused ||
			m.s.WindowState != nil && m.s.Status.CurrentStepState == rollout.StateReady)
	if again {
		m.s.ChangeObserved, m.s.Recheck = false, recheckInspect
	}
	return again
}
