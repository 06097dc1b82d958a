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

// routesBack is a change that somebody else has made to what routes to the workload, while it is being put back.
type routesBack struct {
	Seen rollout.Observed `json:"seen"`
	// Pinned and Routed say which parts have been seen to.
	Pinned bool `json:"pinned,omitempty"`
	Routed bool `json:"routed,omitempty"`
}

// Observed takes a hint that somebody else has changed something: it is looked at when the step rests, and before Services or routes wait for
// pods that may be gone by it. Several hints are one look. One of another release's object is none.
func (m *Machine) Observed(o rollout.Observed, now time.Time) {
	if !m.isOurs(o) {
		return
	}
	if m.leg != nil { // whatever it is, what is done goes on with it in mind
		m.onLeg(func(m *Machine) { m.Observed(o, now) })
		m.interrupted = true
	}
	m.sheltered(o, now)
	if m.s.Redeclared != "" && o.What != rollout.ObservedRoutes { // what the workload declares is looked at once more
		m.lookAtDeclared()
		return
	}
	switch {
	case !m.inSteps():
		return
	case o.What == rollout.ObservedRoutes:
		m.routesDisturbed(o)
		return
	case !m.s.Moved:
		return
	}
	m.s.Observed = true
	if o.What == rollout.ObservedSettings && !m.disputed() {
		m.s.Observed = m.putsBack(o, true, now)
	}
	if r := m.running; m.s.Observed && m.looksFirst() && r != nil && r.Kind == ActRoute && r.makes() {
		m.interrupted = true
	}
	m.disturbedWhileHeld(o, now)
}

// disturbedWhileHeld has the pods brought to rest once more where a person holds the rollout: what is held cannot be looked at like a step that is done. The extra
// Deployment is not made again before that.
func (m *Machine) disturbedWhileHeld(o rollout.Observed, now time.Time) {
	held := m.s.Trouble != nil || m.s.Status.Paused && m.s.Status.CurrentStepState != rollout.StatePaused
	if held && o.What == "deleted" && o.Object == m.workload()+strategy.CanarySuffix {
		m.policyDecides(rollout.VerbPause, o.Message+": it is made again when the release goes on", now)
	}
	if o.What == rollout.ObservedSettings && !m.disputed() {
		m.s.PodsUnsettled = m.s.PodsUnsettled || held && m.s.Observed
	}
}

// isOurs says whether a hint is of this release's workload, of the extra one that it made, or of what it has borrowed beside them.
func (m *Machine) isOurs(o rollout.Observed) bool {
	if o.Claim == "" && o.Object == "" {
		return true
	}
	ours := o.Object == m.workload() || o.Object == m.workload()+strategy.CanarySuffix
	switch o.What {
	case rollout.ObservedRoutes, rollout.ObservedUnpinned, rollout.ObservedUnrouted:
		ours = m.routesBy(o.Object)
	case rollout.ObservedSettings:
		ours = ours || strings.HasPrefix(o.Object, "HorizontalPodAutoscaler "+m.setup.Spec.Namespace+"/")
	}
	return ours && o.Claim == m.setup.Claim
}

// routesBy says whether the release's routings lead through an object ("Service shop/order"), or make it.
func (m *Machine) routesBy(object string) bool {
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
		return slices.ContainsFunc(r.Custom, func(c strategy.ObjectRef) bool { return c.Kind == kind && c.Name == name })
	})
}

// putsBack notes that what somebody else has changed is put back. It holds the rollout, and says so, when that happens too often.
func (m *Machine) putsBack(o rollout.Observed, pods bool, now time.Time) bool {
	m.s.Disturbed++
	by := cmp.Or(o.By, "unknown")
	m.note(rollout.Command{Verb: VerbRestored, Actor: by, Via: "kubernetes"}, audit.Accepted, o.Message+": restored", now)
	if m.s.Disturbed <= rollout.MostDisturbed {
		return true
	}
	if m.s.Trouble == nil {
		what := "have it leave these fields alone"
		if !pods {
			what = "have it leave what this release routes by alone"
		}
		m.s.Trouble = &trouble{Kind: failure.Drift, Pods: pods,
			Message: fmt.Sprintf("%s for the %dth time at this step (field manager %s): %s", o.Message, m.s.Disturbed, by, what)}
	}
	return false
}

// sheltered notes what the party's worker has done by itself so that no request meets nobody. Whether that still holds is not known: the
// rollout may have pinned or routed since.
func (m *Machine) sheltered(o rollout.Observed, now time.Time) {
	switch {
	case o.What == rollout.ObservedUnpinned && m.s.Pinned == yes:
		m.s.Pinned = maybe
	case o.What == rollout.ObservedUnrouted && m.s.Routed == yes:
		m.s.Routed = maybe
		m.s.Status.Traffic = &rollout.TrafficStatus{StableWeight: 100}
	default:
		return
	}
	m.policyDecides(verbRerouted, o.Message, now)
}

// routesDisturbed has a change of what routes to the workload put back at once, if anything of that is this release's now. Pods that are on
// their way are stopped for it: they go on afterwards. Somebody who has been argued with often enough is left to a person.
func (m *Machine) routesDisturbed(o rollout.Observed) {
	ours := m.s.Pinned == yes || m.s.Routed == yes
	if !ours || m.disputed() || m.s.Disturbed > rollout.MostDisturbed {
		return
	}
	m.s.RoutesBack = &routesBack{Seen: o}
	if m.running != nil && m.running.Kind == ActMove && !m.running.Halts() && !m.running.Move.Look {
		m.interrupted = true
	}
}

// disputed says that what somebody else has done waits for a person already, or that the workload is not this release's any more.
func (m *Machine) disputed() bool {
	return m.s.Trouble != nil && (m.s.Trouble.Kind == failure.Drift || lost(m.s.Trouble.Kind))
}

// putRoutesBack is the next change that puts back what somebody else has changed of Services and routes; false: nothing is to be put back.
func (m *Machine) putRoutesBack() (Action, bool) {
	back := m.s.RoutesBack
	var a Action
	switch {
	case back == nil:
		return Action{}, false
	case m.disputed():
		m.s.RoutesBack = nil
		return Action{}, false
	case m.s.Pinned == yes && !back.Pinned:
		a, _ = m.routeOnly(rollout.RoutePin)
	case m.s.Routed != no && m.s.Sent != nil && !back.Routed: // the party's worker may have given them back, since nobody served any more
		a = m.route(rollout.RouteEnsure, *m.s.Sent)
	default:
		m.s.RoutesBack = nil
		return Action{}, false
	}
	a.restores, a.Route.Overwrite, a.Route.Restores = true, true, true
	a.Summary = m.place() + ": put back what somebody else has changed"
	a.why = fmt.Sprintf("%s: %s: it is put back", m.place(), back.Seen.Message)
	return a, true
}

// routesRestored notes what was put back, if anything had to be.
func (m *Machine) routesRestored(a Action, r rollout.RouteResult, same bool, now time.Time) {
	m.allowGrace(r, now)
	if r.Lacks == "" {
		m.routeFacts(a)
	} else {
		m.lacksPods(a)
	}
	back := m.s.RoutesBack
	if !same || back == nil {
		m.s.RoutesBack = nil
		return
	}
	back.Pinned = back.Pinned || a.Route.Action == rollout.RoutePin
	back.Routed = back.Routed || a.Route.Action == rollout.RouteEnsure
	if r.Modified && back.Seen.What != "" && !m.putsBack(back.Seen, false, now) {
		m.s.RoutesBack = nil
	}
}

// lacksPods leaves to the step what could not be put back without its pods, which are looked at before.
func (m *Machine) lacksPods(a Action) {
	if a.Route.Action == rollout.RoutePin {
		m.s.Pinned = maybe
	} else {
		m.s.Routed = maybe
	}
	m.s.Observed = m.s.Observed || m.s.Moved && m.inSteps()
}

// looksFirst says whether what somebody else has changed of the workload is looked at before the traffic is seen to; not so once that is to be
// put back over somebody else's.
func (m *Machine) looksFirst() bool {
	at := m.s.Status.CurrentStepState
	return m.routes() && m.s.Trouble == nil && !m.s.Status.Paused && !m.s.PutBack &&
		(at == rollout.StateBeforeUpgrade || at == rollout.StateTrafficRouting)
}

// lookAgain has the pods looked at when a step rests, or is about to see to the traffic, and a hint came meanwhile.
func (m *Machine) lookAgain() bool {
	again := m.s.Observed && m.s.Check == checkNone && (m.looksFirst() || m.s.Status.CurrentStepState == rollout.StatePaused ||
		m.s.Window != nil && m.s.Status.CurrentStepState == rollout.StateReady)
	if again {
		m.s.Observed, m.s.Check = false, checkLook
	}
	return again
}
