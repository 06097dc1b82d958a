package serving

import (
	"fmt"
	"slices"
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Do is what a controller does about a KusciaDeployment.
type Do string

// What can be done about a serving that was read.
const (
	DoNothing Do = ""
	// DoGuard puts the finalizer on it.
	DoGuard Do = "guard"
	// DoStart starts an operation of Decision.Kind.
	DoStart Do = "start"
)

// NextAction is what is to be done about a KusciaDeployment, and why.
type NextAction struct {
	Do     Do
	Kind   string
	Reason string
	// NotBefore is when the operation is to be started at the earliest; the zero time: now.
	NotBefore time.Time
	// Only is the digest of the version that alone is to be brought about: AppImages may have been edited since, which changes nothing that
	// runs. "": any.
	Only string
}

// recreateAgain is how long after one recreation that failed the next one begins: what stands in the way is seldom gone at once.
const recreateAgain = 5 * time.Minute

// Decide says what is to be done about a KusciaDeployment as it is now. It never decides by what happened, only by what is.
func Decide(kd *kuscia.KusciaDeployment) NextAction {
	op := kd.Status.Operation
	guarded := slices.Contains(kd.Finalizers, kuscia.Finalizer)
	switch {
	case kd.DeletionTimestamp != nil && !guarded:
		return NextAction{Reason: "it is being deleted, and nothing of it is left"}
	case kd.DeletionTimestamp != nil && op != nil && op.Kind == KindDelete:
		return NextAction{Reason: "its deletion is under way"}
	case kd.DeletionTimestamp != nil:
		return NextAction{Do: DoStart, Kind: KindDelete, Reason: "it has been deleted"}
	case !guarded:
		return NextAction{Do: DoGuard, Reason: "it must not go before what its parties run"}
	case op == nil || op.Generation < kd.Generation:
		if kd.Status.Served == nil {
			return NextAction{Do: DoStart, Kind: KindCreate, Reason: "no version of it has come to run yet"}
		}
		return NextAction{Do: DoStart, Kind: KindUpdate, Reason: fmt.Sprintf("generation %d of its spec is new", kd.Generation)}
	case op.Done:
		return decideOver(kd, op)
	}
	return NextAction{Reason: begunWithAll}
}

const begunWithAll = "everything that was asked has been begun with"

// decideOver is what is to be done when the last operation is over and the spec has not changed since.
func decideOver(kd *kuscia.KusciaDeployment, op *kuscia.Operation) NextAction {
	served := kd.Status.Served != nil
	changes, notBefore := drifted(kd)
	lacking := slices.ContainsFunc(specParties(kd), func(p PartyTarget) bool { return statusOf(kd, p).Phase != kuscia.PhaseAvailable })
	var again time.Time
	if op.StartedAt != nil && op.Reason == ReasonPartyFailed && (op.Kind == KindRecreate || !served) {
		again = op.StartedAt.Add(recreateAgain)
	}
	switch {
	case served && missing(kd) != "":
		return NextAction{Do: DoStart, Kind: KindRecreate, Reason: missing(kd), NotBefore: again}
	case served && changes != "":
		return NextAction{Do: DoStart, Kind: KindRecreate, Reason: changes, NotBefore: latest(again, notBefore)}
	case !served && op.Kind == KindCreate && op.Reason == ReasonPartyFailed && !lacking:
		return NextAction{Do: DoStart, Kind: KindCreate, Only: op.Version, NotBefore: again,
			Reason: "every party has come to run it after all: now it is a version to go back to"}
	case op.Reason == ReasonValidateFailed:
		kind := KindCreate
		if served {
			kind = KindUpdate
		}
		return NextAction{Do: DoStart, Kind: kind, Reason: "what it was refused for may have been put right"}
	}
	return NextAction{Reason: begunWithAll}
}

// missing says what of a serving somebody else has deleted, "" when nothing.
func missing(kd *kuscia.KusciaDeployment) string {
	for _, p := range Members(kd) {
		if entry := statusOf(kd, p); len(entry.Missing) > 0 {
			return fmt.Sprintf("somebody has deleted %s of party %s", entry.Missing[0], p.Name())
		}
	}
	return ""
}
