package rollout

import "slipway.io/slipway/release/failure"

// UnderRepair is the failure of a write to an object that an operator repairs by hand (AnnotationRepair).
func UnderRepair(object, by string) *failure.Error {
	return failure.New(failure.Drift, "%s is being repaired by %s: nothing is written to it. When that is done, "+
		"remove its annotation %s and "+
		"retry, or end the rollout", object, by, AnnotationRepair)
}
