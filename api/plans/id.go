package plans

import (
	"regexp"

	"slipway.io/slipway/release/strictyaml"
)

// legalTaskID is what package start makes; nothing else can be the ID of a task.
var legalTaskID = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)

func isTaskID(id string) bool { return len(id) <= 63 && legalTaskID.MatchString(id) }

// itemField is the field that an error about item n, an index into the document, points at.
func itemField(n int) string {
	return strictyaml.Join(strictyaml.Index("deployPlanItems", n), "serviceId")
}
