package conversion

import (
	"maps"

	"slipway.io/slipway/release/jsonpatch"
)

// mergedBeta returns the v1beta1 form of an object that was edited as v1alpha1: was, with the changes of the edit. A
// blue-green stays one, unless the edit names another style.
func mergedBeta(alpha, was form) (form, error) {
	edited, err := plainBeta(alpha)
	if err != nil {
		return form{}, err
	}
	shown := plainAlpha(was)
	before, err := plainBeta(shown)
	if err != nil { // it had no v1alpha1 form, so there is nothing to keep
		return edited, nil
	}
	restyled := alpha.Annotations[AnnotationStyle] != shown.Annotations[AnnotationStyle] ||
		alpha.Annotations[AnnotationStyleAlias] != shown.Annotations[AnnotationStyleAlias]
	isBlueGreen := rename(&was, "blueGreen", "canary")
	merged := merge(edited, before, was)
	switch {
	case restyled:
		copyExtra(merged, edited)
	case isBlueGreen:
		rename(&merged, "canary", "blueGreen")
	}
	return merged, nil
}

// mergedAlpha returns the v1alpha1 form of an object that was edited as v1beta1: was, with the changes of the edit.
func mergedAlpha(beta, was form) form {
	shown, err := plainBeta(was)
	if err != nil {
		return plainAlpha(beta)
	}
	return merge(plainAlpha(beta), plainAlpha(shown), was)
}

// merge returns was with everything that differs between before and edited.
func merge(edited, before, was form) form {
	out := form{Annotations: map[string]string{}}
	out.Spec = mergeValue(edited.Spec, before.Spec, was.Spec)
	for _, key := range formAnnotations {
		from := edited.Annotations
		if equalField(from, before.Annotations, key) {
			from = was.Annotations
		}
		if value, there := from[key]; there && key != AnnotationAlpha && key != AnnotationBeta {
			out.Annotations[key] = value
		}
	}
	if len(out.Annotations) == 0 {
		out.Annotations = nil
	}
	return out
}

func equalField(a, b map[string]string, key string) bool {
	x, isX := a[key]
	y, isY := b[key]
	return isX == isY && x == y
}

// mergeValue merges one value of a spec; nil is an absent one.
func mergeValue(edited, before, was any) any {
	if equal(edited, before) {
		return was
	}
	switch e := edited.(type) {
	case map[string]any:
		b, isB := before.(map[string]any)
		w, isW := was.(map[string]any)
		if isB && isW {
			return mergeObject(e, b, w)
		}
	case []any:
		b, isB := before.([]any)
		w, isW := was.([]any)
		if isB && isW && len(b) == len(w) {
			return mergeList(e, b, w)
		}
	}
	return edited
}

func mergeObject(edited, before, was map[string]any) map[string]any {
	keys := maps.Clone(edited)
	maps.Copy(keys, was)
	out := map[string]any{}
	for key := range keys {
		if value := mergeValue(edited[key], before[key], was[key]); value != nil {
			out[key] = value
		}
	}
	return out
}

// mergeList merges lists by index. If the number of entries changed, unchanged entries are matched in order, and the
// others count as new.
func mergeList(edited, before, was []any) []any {
	out := make([]any, len(edited))
	next := 0
	for i, entry := range edited {
		if len(edited) == len(before) {
			out[i] = mergeValue(entry, before[i], was[i])
			continue
		}
		out[i] = entry
		for j := next; j < len(before); j++ {
			if equal(entry, before[j]) {
				out[i], next = was[j], j+1
				break
			}
		}
	}
	return out
}

// rename renames a strategy in a form and reports whether it did. It does nothing if the form lacks from or already has
// to.
func rename(f *form, from, to string) bool {
	spec, _ := f.Spec.(map[string]any)
	strategy := jsonpatch.DigObject(spec, "strategy")
	body, is := strategy[from].(map[string]any)
	if _, taken := strategy[to]; !is || taken {
		return false
	}
	f.Spec = jsonpatch.Apply(spec, []jsonpatch.Op{jsonpatch.Remove("/strategy/" + from),
		jsonpatch.Add("/strategy/"+to, body)})
	return true
}

// copyExtra copies enableExtraWorkloadForCanary from the edited form to the merged one.
func copyExtra(merged, edited form) {
	const extra = "enableExtraWorkloadForCanary"
	of := func(f form) map[string]any {
		spec, _ := f.Spec.(map[string]any)
		return jsonpatch.DigObject(spec, "strategy", "canary")
	}
	to, from := of(merged), of(edited)
	if to == nil {
		return
	}
	delete(to, extra)
	if value, there := from[extra]; there {
		to[extra] = value
	}
}
