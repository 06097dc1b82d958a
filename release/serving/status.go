package serving

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// The reasons of a status, one word each.
const (
	// ReasonUpdateRolledBack: an update failed, and every party is on the former version again, or on its way to it.
	ReasonUpdateRolledBack = "UpdateRolledBack"
	// ReasonPartyUnreachable: a party's worker does not answer.
	ReasonPartyUnreachable = "PartyUnreachable"
	// ReasonPartyFailed: a party could not be brought to what was asked.
	ReasonPartyFailed = "PartyFailed"
	// ReasonObjectsMissing: somebody else has deleted what a party runs.
	ReasonObjectsMissing = "ObjectsMissing"
)

// Observe takes over what the parties' workers have seen, unless it is older than what is known or of another serving. It says whether
// anything is new.
func Observe(kd *kuscia.KusciaDeployment, observations []Observation, at time.Time) bool {
	changed := false
	for _, o := range observations {
		p, ours := partyOf(kd, o)
		known := statusOf(kd, p)
		if !ours || o.Seen.overtaken(known, at) {
			continue
		}
		seen := o.Seen.entry(at)
		seen.Role, seen.Queue, seen.Failure, seen.Restorations = p.Role, known.Queue, known.Failure, known.Restorations
		seen.Phase, seen.Reason, seen.Message, seen.Unreachable = known.Phase, known.Reason, known.Message, ""
		if known.ObservedAt == nil || !sameObservation(known, seen) {
			changed = true
			setStatus(kd, p, seen)
		}
	}
	return changed
}

// partyOf is the party that runs a Deployment: one of the spec, or one that an operation has begun with before the spec left it out.
func partyOf(kd *kuscia.KusciaDeployment, o Observation) (p PartyTarget, ours bool) {
	if o.UID != string(kd.UID) {
		return p, false
	}
	p = PartyTarget{Domain: o.Domain, Deployment: o.Deployment}
	if entry, known := kd.Status.PartyDeploymentStatuses[o.Domain][o.Deployment]; known {
		p.Role = entry.Role
		return p, true
	}
	named := specParties(kd)
	if i := slices.IndexFunc(named, p.same); i >= 0 {
		return named[i], true
	}
	return p, false
}

// sameObservation: what was seen at another time is the same when nothing else differs.
func sameObservation(a, b kuscia.PartyDeploymentStatus) bool {
	a.ObservedAt, b.ObservedAt = nil, nil
	a.DeploymentVersion, b.DeploymentVersion = "", ""
	return equality.Semantic.DeepEqual(a, b)
}

func statusOf(kd *kuscia.KusciaDeployment, p PartyTarget) kuscia.PartyDeploymentStatus {
	return kd.Status.PartyDeploymentStatuses[p.Domain][p.Deployment]
}

func setStatus(kd *kuscia.KusciaDeployment, p PartyTarget, entry kuscia.PartyDeploymentStatus) {
	all := kd.Status.PartyDeploymentStatuses
	if all == nil {
		all = map[string]map[string]kuscia.PartyDeploymentStatus{}
		kd.Status.PartyDeploymentStatuses = all
	}
	if all[p.Domain] == nil {
		all[p.Domain] = map[string]kuscia.PartyDeploymentStatus{}
	}
	all[p.Domain][p.Deployment] = entry
}

// MarkUnreachable notes why parties can't be reached, by domain; all others can. It says whether anything is new.
func MarkUnreachable(kd *kuscia.KusciaDeployment, away map[string]string) bool {
	changed := false
	for _, p := range specParties(kd) {
		if entry := statusOf(kd, p); marksAnew(entry, away[p.Domain]) {
			changed = true
			entry.Unreachable, entry.Role = away[p.Domain], p.Role
			setStatus(kd, p, entry)
		}
	}
	return changed
}

// IsMarkedUnreachable says that MarkUnreachable would find nothing new.
func IsMarkedUnreachable(kd *kuscia.KusciaDeployment, away map[string]string) bool {
	return !slices.ContainsFunc(specParties(kd), func(p PartyTarget) bool { return marksAnew(statusOf(kd, p), away[p.Domain]) })
}

// marksAnew says whether it is new that a party is away, for that reason, or that it is there. A sentence that only grows older is nothing new.
func marksAnew(entry kuscia.PartyDeploymentStatus, away string) bool {
	return (entry.Unreachable == "") != (away == "")
}

// MarkFailed notes why parties failed, by the place in parties, which are the operation's: a spec may have them in another order.
func MarkFailed(kd *kuscia.KusciaDeployment, parties []PartyTarget, failures map[int]string) {
	for _, p := range Members(kd) {
		entry, sentence := statusOf(kd, p), failures[slices.IndexFunc(parties, p.same)]
		if entry.Failure != sentence {
			entry.Failure, entry.Role = sentence, p.Role
			setStatus(kd, p, entry)
		}
	}
}

// MarkComplete notes when an operation saw a party complete, by the place in parties: what was missing or changed before that is
// restored.
func MarkComplete(kd *kuscia.KusciaDeployment, parties []PartyTarget, complete map[int]time.Time) {
	for i, p := range parties {
		entry := statusOf(kd, p)
		if at, seen := complete[i]; seen && entry.ObservedAt != nil && entry.ObservedAt.Time.Before(at) {
			entry.Missing, entry.Drift = nil, nil
			setStatus(kd, p, entry)
		}
	}
}

// Carry keeps the reason of a failed update for a recreation that follows it: it is shown until the next good update.
func Carry(former, op *kuscia.Operation) {
	if former == nil || op.Kind != KindRecreate || op.Reason != "" && op.Reason != ReasonPartyUnreachable {
		return
	}
	if former.Reason == ReasonUpdateRolledBack || former.Reason == ReasonValidateFailed {
		op.Reason, op.Message = former.Reason, former.Message
	}
}

// Begun notes with which parties an operation begins: they stay the serving's until it is deleted, whatever its spec says.
func Begun(kd *kuscia.KusciaDeployment, parties []PartyTarget) {
	kd.Status.Refused = nil
	for _, p := range parties {
		entry := statusOf(kd, p)
		entry.Role, entry.Queue = p.Role, p.Queue
		setStatus(kd, p, entry)
	}
}

// specParties are the parties that the spec names, in its order. Queue is where an operation has last begun with the party.
func specParties(kd *kuscia.KusciaDeployment) []PartyTarget {
	all := make([]PartyTarget, len(kd.Spec.Parties))
	for i, p := range kd.Spec.Parties {
		all[i] = PartyTarget{Domain: p.DomainID, Role: p.Role, Deployment: DeploymentName(kd.Name, p.Role)}
		all[i].Queue = statusOf(kd, all[i]).Queue
	}
	return all
}

// Members are the parties of a serving: those that its spec names, in its order, and those that it has left out.
func Members(kd *kuscia.KusciaDeployment) []PartyTarget {
	return append(specParties(kd), LeftOut(kd)...)
}

// LeftOut are the parties that an operation has begun with and the spec names no more, in order of domain and Deployment.
func LeftOut(kd *kuscia.KusciaDeployment) []PartyTarget {
	named := specParties(kd)
	var left []PartyTarget
	for _, domain := range slices.Sorted(maps.Keys(kd.Status.PartyDeploymentStatuses)) {
		for _, deployment := range slices.Sorted(maps.Keys(kd.Status.PartyDeploymentStatuses[domain])) {
			entry := kd.Status.PartyDeploymentStatuses[domain][deployment]
			p := PartyTarget{Domain: domain, Role: entry.Role, Deployment: deployment, Queue: entry.Queue}
			if entry.Queue != "" && !slices.ContainsFunc(named, p.same) {
				left = append(left, p)
			}
		}
	}
	return left
}

// Settle computes the phases of the parties and of the whole. Parties that the spec leaves out don't count, but stay known: they have
// something to remove.
func Settle(kd *kuscia.KusciaDeployment) {
	st := &kd.Status
	members, former := Members(kd), st.PartyDeploymentStatuses
	st.PartyDeploymentStatuses = nil
	st.TotalParties, st.AvailableParties = len(kd.Spec.Parties), 0
	entries := make([]kuscia.PartyDeploymentStatus, len(members))
	for i, p := range members {
		entry, known := former[p.Domain][p.Deployment]
		judgeParty(st.Operation, &entry)
		if known {
			setStatus(kd, p, entry)
		}
		entries[i] = entry
		if i < st.TotalParties && (entry.Phase == kuscia.PhaseAvailable || entry.Phase == kuscia.PhasePartialAvailable) {
			st.AvailableParties++
		}
	}
	if !deletes(st.Operation) { // what a party has to remove that the spec has left out is a deletion's trouble alone
		members, entries = members[:st.TotalParties], entries[:st.TotalParties]
	}
	st.Phase, st.Reason, st.Message = judge(kd, members, entries)
}

// isWhole says that a party has everything that its Deployment was asked for, and no pod that is not available.
func isWhole(e kuscia.PartyDeploymentStatus) bool {
	return e.ObservedAt != nil && len(e.Missing) == 0 && len(e.Drift) == 0 &&
		e.UpdatedReplicas >= e.Replicas && e.AvailableReplicas >= e.Replicas && e.UnavailableReplicas == 0
}

func deletes(op *kuscia.Operation) bool { return op != nil && op.Kind == KindDelete }

func judgeParty(op *kuscia.Operation, e *kuscia.PartyDeploymentStatus) {
	running := op != nil && !op.Done
	stale := op != nil && op.Version != "" && e.Version != op.Version // the numbers are of another version than what is asked
	whole := !stale && isWhole(*e)
	if whole && !running {
		e.Failure = ""
	}
	e.Reason, e.Message = "", ""
	switch {
	case e.Unreachable != "":
		e.Phase, e.Reason, e.Message = kuscia.PhaseUnknown, ReasonPartyUnreachable, e.Unreachable
	case whole && (e.Failure == "" || !deletes(op)): // what cannot be removed is no success
		e.Phase = kuscia.PhaseAvailable
	case e.Failure != "":
		e.Phase, e.Reason, e.Message = kuscia.PhaseFailed, ReasonPartyFailed, e.Failure
	case e.ObservedAt == nil:
		e.Phase = kuscia.PhasePending
	case len(e.Missing) > 0:
		e.Phase = kuscia.PhaseProgressing
		e.Reason, e.Message = whyMissing(op, strings.Join(e.Missing, ", "))
	case stale:
		e.Phase = kuscia.PhaseProgressing
	case len(e.Drift) > 0:
		e.Phase, e.Reason, e.Message = kuscia.PhaseProgressing, ReasonObjectsDrifted, whyDrifted(*e)
	case running || e.AvailableReplicas == 0 && e.Replicas > 0:
		e.Phase, e.Reason, e.Message = kuscia.PhaseProgressing, e.PodReason, e.PodMessage
	default:
		e.Phase, e.Reason, e.Message = kuscia.PhasePartialAvailable, e.PodReason, e.PodMessage
	}
}

// whyMissing says why objects are not there: a deletion removes them itself.
func whyMissing(op *kuscia.Operation, missing string) (reason, message string) {
	if deletes(op) {
		return "", "what it ran is being removed; gone already: " + missing
	}
	return ReasonObjectsMissing, "somebody has deleted " + missing
}

func judge(kd *kuscia.KusciaDeployment, members []PartyTarget, entries []kuscia.PartyDeploymentStatus) (kuscia.Phase, string, string) {
	op := kd.Status.Operation
	if op == nil {
		return kuscia.PhasePending, "", ""
	}
	phase, reason, message := worst(members, entries)
	switch {
	case op.Done && op.Reason == ReasonPartyFailed && phase == kuscia.PhaseAvailable:
		return phase, "", "" // it has been put right since
	case op.Done && op.Reason != "" && kd.Status.Served == nil:
		return kuscia.PhaseFailed, op.Reason, op.Message
	case !op.Done && phase == kuscia.PhaseFailed && (op.Reason == ReasonUpdateRolledBack || deletes(op)):
		// The way back, or the removal, itself fails: it is tried again, and yet nobody should wait for it in good faith.
	case !op.Done && phase != kuscia.PhaseAvailable || phase == kuscia.PhasePending:
		phase = kuscia.PhaseProgressing
	}
	if op.Reason != "" { // what went wrong is told until it is put right
		reason, message = op.Reason, op.Message
	}
	return phase, reason, message
}

// worst is the worst phase of the parties. Of several in that phase the first says why.
func worst(members []PartyTarget, entries []kuscia.PartyDeploymentStatus) (phase kuscia.Phase, reason, message string) {
	for _, candidate := range []kuscia.Phase{
		kuscia.PhaseFailed, kuscia.PhaseUnknown, kuscia.PhaseProgressing, kuscia.PhasePending, kuscia.PhasePartialAvailable,
	} {
		i := slices.IndexFunc(entries, func(e kuscia.PartyDeploymentStatus) bool { return e.Phase == candidate })
		if i < 0 {
			continue
		}
		if entries[i].Message != "" {
			message = fmt.Sprintf("party %s: %s", members[i].Name(), entries[i].Message)
		}
		return candidate, entries[i].Reason, message
	}
	return kuscia.PhaseAvailable, "", ""
}
