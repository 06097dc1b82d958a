package serving

import (
	"fmt"
	"slices"
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Do is what the controller does about a KusciaDeployment.
type Do string

// The values of Do.
const (
	DoNothing Do = ""
	// DoAddFinalizer adds the finalizer.
	DoAddFinalizer Do = "guard"
	// DoStart starts an operation of NextAction.Kind.
	DoStart Do = "start"
)

// NextAction is what the controller has to do about a KusciaDeployment, and why.
type NextAction struct {
	Do     Do
	Kind   string
	Reason string
	// NotBefore is the earliest start time of the operation; the zero time means now.
	NotBefore time.Time
	// OnlyVersion is the digest of the only version that the operation may apply; "" means any. AppImages may have been
	// edited since, which must not change running parties.
	OnlyVersion string
}

// recreateInterval is the interval between the start of a recreation or creation that failed and the start of the next
// one: its cause rarely disappears at once.
const recreateInterval = 5 * time.Minute

// Decide returns what to do about a KusciaDeployment. It depends only on the current state, never on events.
func Decide(kd *kuscia.KusciaDeployment) NextAction {
	op := kd.Status.Operation
	guarded := slices.Contains(kd.Finalizers, kuscia.Finalizer)
	switch {
	case kd.DeletionTimestamp != nil && !guarded:
		return NextAction{Reason: "it is being deleted, and its finalizer is already removed"}
	case kd.DeletionTimestamp != nil && op != nil && op.Kind == KindDelete:
		return NextAction{Reason: "its deletion is in progress"}
	case kd.DeletionTimestamp != nil:
		return NextAction{Do: DoStart, Kind: KindDelete, Reason: "it has been deleted"}
	case !guarded:
		return NextAction{Do: DoAddFinalizer, Reason: "its finalizer is missing: it must stay until its parties' " +
			"objects are deleted"}
	case op == nil || op.Generation < kd.Generation:
		if kd.Status.Served == nil {
			return NextAction{Do: DoStart, Kind: KindCreate, Reason: "no version has run in all parties yet"}
		}
		return NextAction{Do: DoStart, Kind: KindUpdate,
			Reason: fmt.Sprintf("generation %d of its spec is new", kd.Generation)}
	case op.Done:
		return decideAfterOperation(kd, op)
	}
	return NextAction{Reason: alreadyStarted}
}

const alreadyStarted = "an operation has started for the current spec"

// decideAfterOperation returns what to do when the last operation has ended and the spec has not changed since.
func decideAfterOperation(kd *kuscia.KusciaDeployment, op *kuscia.Operation) NextAction {
	served := kd.Status.Served != nil
	changes, notBefore := drifted(kd)
	lacking := slices.ContainsFunc(specParties(kd), func(p PartyTarget) bool {
		return statusOf(kd, p).Phase != kuscia.PhaseAvailable
	})
	var again time.Time
	if op.StartedAt != nil && op.Reason == ReasonPartyFailed && (op.Kind == KindRecreate || !served) {
		again = op.StartedAt.Add(recreateInterval)
	}
	switch {
	case served && missing(kd) != "":
		return NextAction{Do: DoStart, Kind: KindRecreate, Reason: missing(kd), NotBefore: again}
	case served && changes != "":
		return NextAction{Do: DoStart, Kind: KindRecreate, Reason: changes, NotBefore: latest(again, notBefore)}
	case !served && op.Kind == KindCreate && op.Reason == ReasonPartyFailed && !lacking:
		return NextAction{Do: DoStart, Kind: KindCreate, OnlyVersion: op.Version, NotBefore: again,
			Reason: "every party runs the version after all: it becomes the version to roll back to"}
	case op.Reason == ReasonValidateFailed:
		kind := KindCreate
		if served {
			kind = KindUpdate
		}
		return NextAction{Do: DoStart, Kind: kind, Reason: "the reason for the refusal may no longer apply"}
	}
	return NextAction{Reason: alreadyStarted}
}

// missing returns which object of a serving another client has deleted, as text; "" if none.
func missing(kd *kuscia.KusciaDeployment) string {
	for _, p := range Members(kd) {
		if entry := statusOf(kd, p); len(entry.Missing) > 0 {
			return fmt.Sprintf("another client has deleted %s of party %s", entry.Missing[0], p.Name())
		}
	}
	return ""
}
