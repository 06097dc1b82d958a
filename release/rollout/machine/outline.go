package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxOutline is the longest outline, in bytes.
const maxOutline = 300

// Outline is what the release does in a few words: "app → registry/app:2, partition in 3 steps".
func (a Asked) Outline() string {
	if a.BringHome {
		return "brings home what a rollout left frozen"
	}
	spec := a.Spec
	steps := fmt.Sprintf("%d steps", len(spec.Strategy.Steps))
	if len(spec.Strategy.Steps) == 1 {
		steps = "1 step"
	}
	text := fmt.Sprintf("%s, %s in %s", a.change(), spec.Strategy.Style, steps)
	if a.Task != "" {
		text = "task " + a.Task + ": " + text
	}
	if len(text) <= maxOutline {
		return text
	}
	return strings.ToValidUTF8(text[:maxOutline-len("…")], "") + "…"
}

// change is what the new version differs in.
func (a Asked) change() string {
	spec := a.Spec
	change := "a patch of the pod template"
	if code := spec.Change.Package; code != nil {
		change = code.What()
	}
	if image := spec.Change.Image; image != nil {
		change = image.What()
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
