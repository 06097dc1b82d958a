package rollout

import "slipway.io/slipway/release/failure"

// Repaired is the failure of a write on an object that a person has taken into their own hands (AnnotationRepair).
func Repaired(object, by string) *failure.Error {
	return failure.New(failure.Drift, "%s is being repaired by %s: nothing is written to it. When that is done, remove its annotation %s and "+
		"retry, or end the rollout", object, by, AnnotationRepair)
}
