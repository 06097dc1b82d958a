package conversion

import "maps"

// mergedBeta is the form of v1beta1 of an object that was edited as v1alpha1: was, with what the edit has changed. A blue-green stays one,
// unless the edit names another style.
func mergedBeta(alpha, was form) (form, error) {
	edited, err := plainBeta(alpha)
	if err != nil {
		return form{}, err
	}
	shown := plainAlpha(was)
	before, err := plainBeta(shown)
	if err != nil { // nothing of it could be shown, so that nothing of it is to be kept
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

// mergedAlpha is the form of v1alpha1 of an object that was edited as v1beta1: was, with what the edit has changed.
func mergedAlpha(beta, was form) form {
	shown, err := plainBeta(was)
	if err != nil {
		return plainAlpha(beta)
	}
	return merge(plainAlpha(beta), plainAlpha(shown), was)
}

// merge is was with all that differs between before and edited.
func merge(edited, before, was form) form {
	out := form{Annotations: map[string]string{}}
	out.Spec, _ = mergeValue(field(edited.Spec), field(before.Spec), field(was.Spec))
	for _, key := range meaningful {
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

// optional is a value that may be absent.
type optional struct {
	value any
	there bool
}

func field(value any) optional { return optional{value, value != nil} }

// mergeValue merges one value of a spec; there says whether it is to be there.
func mergeValue(edited, before, was optional) (value any, there bool) {
	if edited.there == before.there && equal(edited.value, before.value) {
		return was.value, was.there
	}
	switch e := edited.value.(type) {
	case map[string]any:
		b, isB := before.value.(map[string]any)
		w, isW := was.value.(map[string]any)
		if isB && isW {
			return mergeObject(e, b, w), true
		}
	case []any:
		b, isB := before.value.([]any)
		w, isW := was.value.([]any)
		if isB && isW && len(b) == len(w) {
			return mergeList(e, b, w), true
		}
	}
	return edited.value, edited.there
}

func mergeObject(edited, before, was map[string]any) map[string]any {
	keys := maps.Clone(edited)
	maps.Copy(keys, before)
	maps.Copy(keys, was)
	out := map[string]any{}
	for key := range keys {
		at := func(object map[string]any) optional {
			value, there := object[key]
			return optional{value, there}
		}
		if value, there := mergeValue(at(edited), at(before), at(was)); there {
			out[key] = value
		}
	}
	return out
}

// mergeList merges lists by their places. Where entries have come or gone, those that are as they were are found again, and the others are
// new.
func mergeList(edited, before, was []any) []any {
	out := make([]any, len(edited))
	next := 0
	for i, entry := range edited {
		if len(edited) == len(before) {
			out[i], _ = mergeValue(field(entry), field(before[i]), field(was[i]))
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

// rename gives the strategy of a form another name, if it has it and not the other, and says whether it did.
func rename(f *form, from, to string) bool {
	spec, _ := f.Spec.(map[string]any)
	strategy, _ := spec["strategy"].(map[string]any)
	body, is := strategy[from].(map[string]any)
	if _, taken := strategy[to]; !is || taken {
		return false
	}
	strategy = maps.Clone(strategy)
	delete(strategy, from)
	strategy[to] = body
	spec = maps.Clone(spec)
	spec["strategy"] = strategy
	f.Spec = spec
	return true
}

// copyExtra says in a merged form what the edited one says of an extra workload.
func copyExtra(merged, edited form) {
	const extra = "enableExtraWorkloadForCanary"
	of := func(f form) map[string]any {
		spec, _ := f.Spec.(map[string]any)
		strategy, _ := spec["strategy"].(map[string]any)
		body, _ := strategy["canary"].(map[string]any)
		return body
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
