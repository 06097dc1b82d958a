package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.io/slipway/release/phrase"
)

// maxOutline is the longest outline, in bytes.
const maxOutline = 300

// Outline summarises the release: "app → registry/app:2, partition in 3 steps".
func (a Request) Outline() string {
	if a.RollBackFrozen {
		return "rolls back a frozen rollout"
	}
	spec := a.Spec
	text := fmt.Sprintf("%s, %s in %s", a.change(), spec.Strategy.Style, phrase.Count(len(spec.Strategy.Steps), "step"))
	if a.Task != "" {
		text = "task " + a.Task + ": " + text
	}
	return phrase.Cut(text, maxOutline)
}

// change returns what the new version changes.
func (a Request) change() string {
	spec := a.Spec
	change := "a patch of the pod template"
	if code := spec.Change.Package; code != nil {
		change = code.Describe()
	}
	if image := spec.Change.Image; image != nil {
		change = image.Describe()
	}
	if images := spec.Change.ImagesOf(); len(images) > 0 {
		var parts []string
		for _, container := range slices.Sorted(maps.Keys(images)) {
			parts = append(parts, container+" → "+images[container])
		}
		change = strings.Join(parts, ", ")
	}
	if spec.Undo != nil {
		change = spec.Undo.String() + ": " + change
	}
	return change
}
