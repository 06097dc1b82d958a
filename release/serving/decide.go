package serving

import (
	"fmt"
	"slices"
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Do is what a controller does about a KusciaDeployment.
type Do string

// What there is to do.
const (
	DoNothing Do = ""
	// DoGuard puts the finalizer on it.
	DoGuard Do = "guard"
	// DoStart starts an operation of Decision.Kind.
	DoStart Do = "start"
)

// Decision is what is to be done about a KusciaDeployment, and why.
type Decision struct {
	Do     Do
	Kind   string
	Reason string
	// NotBefore is when the operation is to be started at the earliest; the zero time: now.
	NotBefore time.Time
	// Only is the digest of the version that alone is to be brought about: AppImages may have been edited since, which changes nothing that runs. "": any.
	Only string
}

// RecreateAgain is how long after one recreation that failed the next one begins: what stands in the way is seldom gone at once.
const RecreateAgain = 5 * time.Minute

// Decide says what is to be done about a KusciaDeployment as it is now. It never decides by what happened, only by what is.
func Decide(kd *kuscia.KusciaDeployment) Decision {
	op := kd.Status.Operation
	guarded := slices.Contains(kd.Finalizers, kuscia.Finalizer)
	switch {
	case kd.DeletionTimestamp != nil && !guarded:
		return Decision{Reason: "it is being deleted, and nothing of it is left"}
	case kd.DeletionTimestamp != nil && op != nil && op.Kind == KindDelete:
		return Decision{Reason: "its deletion is under way"}
	case kd.DeletionTimestamp != nil:
		return Decision{Do: DoStart, Kind: KindDelete, Reason: "it has been deleted"}
	case !guarded:
		return Decision{Do: DoGuard, Reason: "it must not go before what its parties run"}
	case op == nil || op.Generation < kd.Generation:
		if kd.Status.Served == nil {
			return Decision{Do: DoStart, Kind: KindCreate, Reason: "no version of it has come to run yet"}
		}
		return Decision{Do: DoStart, Kind: KindUpdate, Reason: fmt.Sprintf("generation %d of its spec is new", kd.Generation)}
	case op.Done:
		return decideOver(kd, op)
	}
	return Decision{Reason: begunWithAll}
}

const begunWithAll = "everything that was asked has been begun with"

// decideOver is what is to be done when the last operation is over and the spec has not changed since.
func decideOver(kd *kuscia.KusciaDeployment, op *kuscia.Operation) Decision {
	served := kd.Status.Served != nil
	changes, notBefore := drifted(kd)
	switch {
	case served && missing(kd) != "":
		d := Decision{Do: DoStart, Kind: KindRecreate, Reason: missing(kd)}
		d.NotBefore = recreateAgain(op)
		return d
	case served && changes != "":
		d := Decision{Do: DoStart, Kind: KindRecreate, Reason: changes, NotBefore: notBefore}
		if again := recreateAgain(op); again.After(notBefore) {
			d.NotBefore = again
		}
		return d
	case !served && op.Kind == KindCreate && op.Reason == ReasonPartyFailed && allAvailable(kd):
		d := Decision{Do: DoStart, Kind: KindCreate, Only: op.Version, Reason: "every party has come to run it after all: now it is a version to go back to"}
		if op.StartedAt != nil {
			d.NotBefore = op.StartedAt.Add(RecreateAgain)
		}
		return d
	case op.Reason == ReasonValidateFailed:
		d := Decision{Do: DoStart, Kind: KindCreate, Reason: "what it was refused for may have been put right"}
		if served {
			d.Kind = KindUpdate
		}
		return d
	}
	return Decision{Reason: begunWithAll}
}

// recreateAgain is when a recreation may follow on one that failed; the zero time: at once.
func recreateAgain(op *kuscia.Operation) time.Time {
	if op.Kind == KindRecreate && op.Reason == ReasonPartyFailed && op.StartedAt != nil {
		return op.StartedAt.Add(RecreateAgain)
	}
	return time.Time{}
}

// allAvailable says that every party runs all that it was asked for.
func allAvailable(kd *kuscia.KusciaDeployment) bool {
	return !slices.ContainsFunc(kd.Spec.Parties, func(p kuscia.Party) bool {
		return kd.Status.PartyDeploymentStatuses[p.DomainID][DeploymentName(kd.Name, p.Role)].Phase != kuscia.PhaseAvailable
	})
}

// missing says what of a serving somebody else has deleted, "" when nothing.
func missing(kd *kuscia.KusciaDeployment) string {
	for _, p := range Members(kd) {
		if entry := kd.Status.PartyDeploymentStatuses[p.Domain][p.Deployment]; len(entry.Missing) > 0 {
			return fmt.Sprintf("somebody has deleted %s of party %s", entry.Missing[0], p.Name())
		}
	}
	return ""
}
