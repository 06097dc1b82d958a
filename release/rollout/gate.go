package rollout

import (
	"strconv"

	"slipway.io/slipway/release/operation"
)

// gate stands for one visit of one step of one release at one revision.
func gate(release, revision string, step, visit int) string {
	return operation.Gate(release, revision, strconv.Itoa(step), strconv.Itoa(visit))
}
