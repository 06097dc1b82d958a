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
	// ReasonUpdateRolledBack: an update failed or was stopped, and every party runs the previous version again or is
	// being rolled back.
	ReasonUpdateRolledBack = "UpdateRolledBack"
	// ReasonPartyUnreachable: a party's worker or cluster is unreachable.
	ReasonPartyUnreachable = "PartyUnreachable"
	// ReasonPartyFailed: a party could not be brought to the requested state.
	ReasonPartyFailed = "PartyFailed"
	// ReasonObjectsMissing: another client has deleted objects of a party.
	ReasonObjectsMissing = "ObjectsMissing"
)

// Observe stores the observations of the parties' workers in the status, except those that are older than the status or
// belong to another serving. It reports whether anything changed.
func Observe(kd *kuscia.KusciaDeployment, observations []Observation, at time.Time) bool {
	changed := false
	for _, o := range observations {
		p, ours := partyOf(kd, o)
		known := statusOf(kd, p)
		if !ours || o.Snapshot.isStale(known, at) {
			continue
		}
		seen := o.Snapshot.entry(at)
		seen.Role, seen.Queue, seen.Failure, seen.Restorations = p.Role, known.Queue, known.Failure, known.Restorations
		seen.Phase, seen.Reason, seen.Message, seen.Unreachable = known.Phase, known.Reason, known.Message, ""
		if known.ObservedAt == nil || !sameObservation(known, seen) {
			changed = true
			setStatus(kd, p, seen)
		}
	}
	return changed
}

// OwnObservations returns the observations of parties whose queue is the reporter's: their queue now, or the one that
// the latest operation used. queues are the queues now, by domain. foreign names the other ones.
func OwnObservations(kd *kuscia.KusciaDeployment, in []Observation, queues map[string]string, reporter string) (
	own []Observation, foreign []string) {
	for _, o := range in {
		known := kd.Status.PartyDeploymentStatuses[o.Domain][o.Deployment].Queue
		if ReportsFor(reporter, queues[o.Domain]) || ReportsFor(reporter, known) {
			own = append(own, o)
		} else {
			foreign = append(foreign, o.Domain+"/"+o.Deployment)
		}
	}
	return own, foreign
}

// partyOf returns the party that a Deployment belongs to: one of the spec, or one that an operation has included before
// the spec removed it.
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
	if i := slices.IndexFunc(named, p.sameParty); i >= 0 {
		return named[i], true
	}
	return p, false
}

// sameObservation reports whether two observations differ only in their time and resourceVersion.
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

// MarkUnreachable records why parties are unreachable, by domain; all others are marked reachable. It reports whether
// anything changed.
func MarkUnreachable(kd *kuscia.KusciaDeployment, away map[string]string) bool {
	changes := reachabilityChanges(kd, away)
	for _, p := range changes {
		entry := statusOf(kd, p)
		entry.Unreachable, entry.Role = away[p.Domain], p.Role
		setStatus(kd, p, entry)
	}
	return len(changes) > 0
}

// IsMarkedUnreachable reports whether MarkUnreachable would change nothing.
func IsMarkedUnreachable(kd *kuscia.KusciaDeployment, away map[string]string) bool {
	return len(reachabilityChanges(kd, away)) == 0
}

// reachabilityChanges returns the parties that became reachable or unreachable. A reason that only contains a longer
// duration is not a change.
func reachabilityChanges(kd *kuscia.KusciaDeployment, away map[string]string) []PartyTarget {
	return slices.DeleteFunc(specParties(kd), func(p PartyTarget) bool {
		return (statusOf(kd, p).Unreachable == "") == (away[p.Domain] == "")
	})
}

// MarkFailed records why parties failed, by their index in parties. These are the operation's parties: a spec may list
// them in another order.
func MarkFailed(kd *kuscia.KusciaDeployment, parties []PartyTarget, failures map[int]string) {
	for _, p := range Members(kd) {
		entry, sentence := statusOf(kd, p), failures[slices.IndexFunc(parties, p.sameParty)]
		if entry.Failure != sentence {
			entry.Failure, entry.Role = sentence, p.Role
			setStatus(kd, p, entry)
		}
	}
}

// MarkComplete records when an operation saw a party complete, by the index in parties: objects that were missing or
// changed before that time are restored.
func MarkComplete(kd *kuscia.KusciaDeployment, parties []PartyTarget, complete map[int]time.Time) {
	for i, p := range parties {
		entry := statusOf(kd, p)
		if at, seen := complete[i]; seen && entry.ObservedAt != nil && entry.ObservedAt.Time.Before(at) {
			entry.Missing, entry.Drift = nil, nil
			setStatus(kd, p, entry)
		}
	}
}

// CarryReason keeps the reason of a failed or refused update for a recreation that follows it: it is shown until the
// next successful update.
func CarryReason(former, op *kuscia.Operation) {
	if former == nil || op.Kind != KindRecreate || op.Reason != "" && op.Reason != ReasonPartyUnreachable {
		return
	}
	if former.Reason == ReasonUpdateRolledBack || former.Reason == ReasonValidateFailed {
		op.Reason, op.Message = former.Reason, former.Message
	}
}

// MarkBegun records the parties of an operation that begins: they belong to the serving until it is deleted, even if
// its spec removes them.
func MarkBegun(kd *kuscia.KusciaDeployment, parties []PartyTarget) {
	kd.Status.Refused = nil
	for _, p := range parties {
		entry := statusOf(kd, p)
		entry.Role, entry.Queue = p.Role, p.Queue
		setStatus(kd, p, entry)
	}
}

// specParties returns the parties of the spec, in its order. Queue is the one that an operation last used for the
// party.
func specParties(kd *kuscia.KusciaDeployment) []PartyTarget {
	all := make([]PartyTarget, len(kd.Spec.Parties))
	for i, p := range kd.Spec.Parties {
		all[i] = PartyTarget{Domain: p.DomainID, Role: p.Role, Deployment: DeploymentName(kd.Name, p.Role)}
		all[i].Queue = statusOf(kd, all[i]).Queue
	}
	return all
}

// Members returns the parties of a serving: those of its spec, in its order, and those that the spec has removed.
func Members(kd *kuscia.KusciaDeployment) []PartyTarget {
	return append(specParties(kd), RemovedParties(kd)...)
}

// RemovedParties returns the parties that an operation has included and the spec no longer lists, ordered by domain and
// Deployment.
func RemovedParties(kd *kuscia.KusciaDeployment) []PartyTarget {
	named := specParties(kd)
	var left []PartyTarget
	for _, domain := range slices.Sorted(maps.Keys(kd.Status.PartyDeploymentStatuses)) {
		for _, deployment := range slices.Sorted(maps.Keys(kd.Status.PartyDeploymentStatuses[domain])) {
			entry := kd.Status.PartyDeploymentStatuses[domain][deployment]
			p := PartyTarget{Domain: domain, Role: entry.Role, Deployment: deployment, Queue: entry.Queue}
			if entry.Queue != "" && !slices.ContainsFunc(named, p.sameParty) {
				left = append(left, p)
			}
		}
	}
	return left
}

// UpdatePhases computes the phases of the parties and of the serving. Parties that the spec has removed do not count,
// but are kept: they still have objects to delete.
func UpdatePhases(kd *kuscia.KusciaDeployment) {
	st := &kd.Status
	members, former := Members(kd), st.PartyDeploymentStatuses
	st.PartyDeploymentStatuses = nil
	st.TotalParties, st.AvailableParties = len(kd.Spec.Parties), 0
	entries := make([]kuscia.PartyDeploymentStatus, len(members))
	for i, p := range members {
		entry, known := former[p.Domain][p.Deployment]
		updatePartyPhase(st.Operation, &entry)
		if known {
			setStatus(kd, p, entry)
		}
		entries[i] = entry
		if i < st.TotalParties && (entry.Phase == kuscia.PhaseAvailable ||
			entry.Phase == kuscia.PhasePartialAvailable) {
			st.AvailableParties++
		}
	}
	if !deletes(st.Operation) { // only a deletion has to remove the objects of parties that the spec has removed
		members, entries = members[:st.TotalParties], entries[:st.TotalParties]
	}
	st.Phase, st.Reason, st.Message = overallPhase(kd, members, entries)
}

// isComplete reports whether a party runs everything that its Deployment requests, and no pod is unavailable.
func isComplete(e kuscia.PartyDeploymentStatus) bool {
	return e.ObservedAt != nil && len(e.Missing) == 0 && len(e.Drift) == 0 &&
		e.UpdatedReplicas >= e.Replicas && e.AvailableReplicas >= e.Replicas && e.UnavailableReplicas == 0
}

func deletes(op *kuscia.Operation) bool { return op != nil && op.Kind == KindDelete }

func updatePartyPhase(op *kuscia.Operation, e *kuscia.PartyDeploymentStatus) {
	running := op != nil && !op.Done
	// the replica counts are of another version than the requested one
	stale := op != nil && op.Version != "" && e.Version != op.Version
	complete := !stale && isComplete(*e)
	if complete && !running {
		e.Failure = ""
	}
	e.Reason, e.Message = "", ""
	switch {
	case e.Unreachable != "":
		e.Phase, e.Reason, e.Message = kuscia.PhaseUnknown, ReasonPartyUnreachable, e.Unreachable
	case complete && (e.Failure == "" || !deletes(op)): // a party that cannot be deleted is not Available
		e.Phase = kuscia.PhaseAvailable
	case e.Failure != "":
		e.Phase, e.Reason, e.Message = kuscia.PhaseFailed, ReasonPartyFailed, e.Failure
	case e.ObservedAt == nil:
		e.Phase = kuscia.PhasePending
	case len(e.Missing) > 0:
		e.Phase = kuscia.PhaseProgressing
		e.Reason, e.Message = missingReason(deletes(op), strings.Join(e.Missing, ", "))
	case stale:
		e.Phase = kuscia.PhaseProgressing
	case len(e.Drift) > 0:
		e.Phase, e.Reason, e.Message = kuscia.PhaseProgressing, ReasonObjectsDrifted, driftMessage(*e)
	case running || e.AvailableReplicas == 0 && e.Replicas > 0:
		e.Phase, e.Reason, e.Message = kuscia.PhaseProgressing, e.PodReason, e.PodMessage
	default:
		e.Phase, e.Reason, e.Message = kuscia.PhasePartialAvailable, e.PodReason, e.PodMessage
	}
}

// missingReason explains that objects do not exist.
func missingReason(deleting bool, objects string) (reason, message string) {
	if deleting { // the deletion removes them itself
		return "", "its objects are being removed; already deleted: " + objects
	}
	return ReasonObjectsMissing, "another client has deleted " + objects
}

func overallPhase(kd *kuscia.KusciaDeployment, members []PartyTarget,
	entries []kuscia.PartyDeploymentStatus) (kuscia.Phase, string, string) {
	op := kd.Status.Operation
	if op == nil {
		return kuscia.PhasePending, "", ""
	}
	phase, reason, message := worstPhase(members, entries)
	switch {
	case op.Done && op.Reason == ReasonPartyFailed && phase == kuscia.PhaseAvailable:
		return phase, "", "" // repaired since
	case op.Done && op.Reason != "" && kd.Status.Served == nil:
		return kuscia.PhaseFailed, op.Reason, op.Message
	case !op.Done && phase == kuscia.PhaseFailed && (op.Reason == ReasonUpdateRolledBack || deletes(op)):
		// A rollback or deletion that fails is retried, but users must not expect it to succeed.
	case !op.Done && phase != kuscia.PhaseAvailable || phase == kuscia.PhasePending:
		phase = kuscia.PhaseProgressing
	}
	if op.Reason != "" { // the operation's failure is shown until it is repaired
		reason, message = op.Reason, op.Message
	}
	return phase, reason, message
}

// worstPhase returns the worst phase of the parties. Of several parties in that phase, the first one provides the
// reason.
func worstPhase(members []PartyTarget, entries []kuscia.PartyDeploymentStatus) (phase kuscia.Phase, reason,
	message string) {
	for _, candidate := range []kuscia.Phase{
		kuscia.PhaseFailed, kuscia.PhaseUnknown, kuscia.PhaseProgressing, kuscia.PhasePending,
		kuscia.PhasePartialAvailable,
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
