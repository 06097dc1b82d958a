package machine

import (
	"strconv"

	"slipway.io/slipway/release/workloadops"
)

// gate stands for one visit of one step of one release at one revision.
func gate(release, revision string, step, visit int) string {
	return workloadops.Gate(release, revision, strconv.Itoa(step), strconv.Itoa(visit))
}
