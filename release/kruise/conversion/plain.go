package conversion

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"slipway.io/slipway/release/jsonpatch"
)

// The fields that mean the same in both versions.
var (
	sameOfSpec     = []string{"disabled"}
	sameOfStrategy = []string{"paused"}
	sameOfBody     = []string{"trafficRoutings", "failureThreshold", "patchPodTemplateMetadata",
		"disableGenerateCanaryService"}
	sameOfStep = []string{"requestHeaderModifier", "replicas", "pause"}
)

// The styles that v1alpha1 names in an annotation.
const (
	styleCanary    = "canary"
	stylePartition = "partition"
)

// errNoStrategy rejects an object that would be stored without a strategy.
var errNoStrategy = errors.New("the object has no strategy.canary, the only strategy of v1alpha1, and would be left " +
	"without a strategy: give it steps, or edit it as v1beta1")

// plainBeta converts a form without regard to attached annotations.
func plainBeta(alpha form) (form, error) {
	spec, _ := alpha.Spec.(map[string]any)
	strategy, _ := spec["strategy"].(map[string]any)
	canary, is := strategy["canary"].(map[string]any)
	if !is {
		return form{}, errNoStrategy
	}
	reference, _ := spec["objectRef"].(map[string]any)
	workload := reference["workloadRef"]
	style, err := styleOf(alpha, workload)
	if err != nil {
		return form{}, err
	}
	body := pick(canary, sameOfBody)
	if steps, are := canary["steps"].([]any); are {
		body["steps"] = each(steps, stepBeta)
	}
	if style == styleCanary {
		body["enableExtraWorkloadForCanary"] = true
	}
	if routing := alpha.Annotations[annotationRouting]; routing != "" {
		body["trafficRoutingRef"] = routing
	}
	out := pick(spec, sameOfSpec)
	if workload != nil {
		out["workloadRef"] = workload
	}
	target := pick(strategy, sameOfStrategy)
	target["canary"] = body
	out["strategy"] = target
	beta := form{Spec: out, Annotations: alpha.Annotations}.without(AnnotationAlpha, AnnotationBeta)
	if id, _ := spec["rolloutID"].(string); id != "" && alpha.Annotations[annotationID] == "" {
		beta = beta.with(annotationID, id)
	}
	return beta, nil
}

// stepBeta converts one step. Without replicas, the weight is also the percentage of pods.
func stepBeta(alpha map[string]any) map[string]any {
	step := pick(alpha, sameOfStep)
	if weight, is := alpha["weight"].(int64); is && weight == int64(int32(weight)) {
		step["traffic"] = percent(weight)
		if _, given := alpha["replicas"]; !given {
			step["replicas"] = percent(weight)
		}
	}
	if matches, are := alpha["matches"].([]any); are {
		step["matches"] = matches
	}
	return step
}

// plainAlpha converts a form without regard to attached annotations. A blue-green becomes a canary with the same steps:
// that is how v1alpha1 shows it.
func plainAlpha(beta form) form {
	alpha := form{Spec: beta.Spec, Annotations: beta.Annotations}.without(AnnotationAlpha, AnnotationBeta)
	spec, is := beta.Spec.(map[string]any)
	if !is {
		return alpha
	}
	out := pick(spec, sameOfSpec)
	if workload := spec["workloadRef"]; workload != nil {
		out["objectRef"] = map[string]any{"workloadRef": workload}
	}
	alpha.Spec = out
	strategy, is := spec["strategy"].(map[string]any)
	if !is {
		return alpha
	}
	target := pick(strategy, sameOfStrategy)
	out["strategy"] = target
	name := "canary"
	body, is := strategy[name].(map[string]any)
	if !is {
		name = "blueGreen"
		if body, is = strategy[name].(map[string]any); !is {
			return alpha
		}
	}
	canary := pick(body, sameOfBody)
	if steps, are := body["steps"].([]any); are {
		canary["steps"] = each(steps, stepAlpha)
	}
	target["canary"] = canary
	const reference = "trafficRoutingRef"
	routing := cmp.Or(jsonpatch.DigString(body, reference), jsonpatch.DigString(strategy, reference))
	if routing != "" && alpha.Annotations[annotationRouting] == "" {
		alpha = alpha.with(annotationRouting, routing)
	}
	return alpha.withStyle(name, body["enableExtraWorkloadForCanary"] == true, spec["workloadRef"])
}

// withStyle sets the style annotation if the annotations do not already imply that style.
func (f form) withStyle(strategy string, extra bool, workload any) form {
	current, err := styleOf(f, workload)
	switch {
	case strategy == "blueGreen" && err == nil, err == nil && (current == styleCanary) == extra:
		return f
	case strategy == "blueGreen":
		return f.without(AnnotationStyle, AnnotationStyleAlias)
	case extra:
		return f.with(AnnotationStyle, styleCanary)
	}
	return f.with(AnnotationStyle, stylePartition)
}

// stepAlpha converts one step. Matches of paths and query parameters cannot be expressed. A match that has nothing else
// is dropped: without a condition it would match every request.
func stepAlpha(beta map[string]any) map[string]any {
	step := pick(beta, sameOfStep)
	if text, is := beta["traffic"].(string); is {
		if weight, is := percentNumber(text); is {
			step["weight"] = weight
		}
	}
	matches, are := beta["matches"].([]any)
	if !are {
		return step
	}
	kept := []any{}
	for _, m := range matches {
		match, _ := m.(map[string]any)
		only := pick(match, []string{"headers"})
		if headers, _ := only["headers"].([]any); len(headers) > 0 || len(only) == len(match) {
			kept = append(kept, only)
		}
	}
	if len(kept) > 0 || len(matches) == 0 {
		step["matches"] = kept
	}
	return step
}

// styleOf returns the style that annotations of v1alpha1 name. A Deployment's default is canary; other kinds are always
// partition.
func styleOf(alpha form, workload any) (string, error) {
	for _, key := range []string{AnnotationStyle, AnnotationStyleAlias} {
		switch text := strings.ToLower(alpha.Annotations[key]); text {
		case "":
			continue
		case styleCanary, stylePartition:
			if isDeployment(workload) {
				return text, nil
			}
		default:
			return "", fmt.Errorf("the annotation %s is %q: it must be canary or partition", key,
				alpha.Annotations[key])
		}
	}
	if isDeployment(workload) {
		return styleCanary, nil
	}
	return stylePartition, nil
}

func isDeployment(workload any) bool {
	reference, _ := workload.(map[string]any)
	version, _ := reference["apiVersion"].(string)
	return strings.HasPrefix(version, "apps/") && reference["kind"] == "Deployment"
}

// pick returns an object's fields of these names, as far as it has them.
func pick(from map[string]any, keys []string) map[string]any {
	out := map[string]any{}
	for _, key := range keys {
		if value, there := from[key]; there {
			out[key] = value
		}
	}
	return out
}

// each converts the objects of a list; other values stay unchanged.
func each(list []any, convert func(map[string]any) map[string]any) []any {
	out := make([]any, len(list))
	for i, entry := range list {
		out[i] = entry
		if object, is := entry.(map[string]any); is {
			out[i] = convert(object)
		}
	}
	return out
}

func percent(n int64) string { return strconv.FormatInt(n, 10) + "%" }

func percentNumber(text string) (int64, bool) {
	digits, is := strings.CutSuffix(text, "%")
	n, err := strconv.ParseInt(digits, 10, 32)
	return n, is && err == nil
}

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
		value, there := edited.Annotations[key]
		if shown, had := before.Annotations[key]; had == there && shown == value {
			value, there = was.Annotations[key]
		}
		if there && key != AnnotationAlpha && key != AnnotationBeta {
			out.Annotations[key] = value
		}
	}
	if len(out.Annotations) == 0 {
		out.Annotations = nil
	}
	return out
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
