package pods

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workloadops"
)

const (
	// mostChanges bounds the changes that are told of one workload, longestValue the characters of a value: they pass through a workflow's history.
	mostChanges, longestValue = 40, 160
)

// namedLists are the lists of a pod template whose elements have names.
var namedLists = []string{"containers", "initContainers", "env", "volumes", "volumeMounts", "ports", "imagePullSecrets"}

// open are the fields whose values everybody may see, with all that is below them. Values of other fields, such as the environment, commands and
// probes, may hold secrets.
var open = []string{"image", "imagePullPolicy", "resources", "ports", "labels", "nodeSelector", "securityContext", "serviceAccountName", "mountPath",
	"subPath", "readOnly", "restartPolicy", "terminationGracePeriodSeconds", "hostNetwork", "dnsPolicy", "schedulerName", "priorityClassName"}

// openAnnotations are those annotations whose values everybody may see.
var openAnnotations = append([]string{source.AnnotationPackage, source.AnnotationDeployed}, restartStamps...)

// ChangedFields are the fields in which one pod template differs from another, with their values where they can't be secret. Queries of URLs are
// left out.
func ChangedFields(was, now map[string]any) []workloadops.FieldChange {
	var out []workloadops.FieldChange
	all := differing(nil, "", entryByEntry(was), entryByEntry(now), func(path string) bool { return slices.Contains(namedLists, lastField(path)) })
	for i, d := range all {
		if i == mostChanges {
			return append(out, workloadops.FieldChange{Field: fmt.Sprintf("and %d more", len(all)-i)})
		}
		change := workloadops.FieldChange{Field: d.path, From: shown(d.was), To: shown(d.now)}
		if !isOpen(d.path) && (isScalar(d.was) || isScalar(d.now) || d.was != nil && d.now != nil) {
			change.From, change.To, change.Hidden = "", "", true
		}
		out = append(out, change)
	}
	return out
}

// entryByEntry is a copy of a template whose labels and annotations are there, so that they are compared one by one.
func entryByEntry(template map[string]any) map[string]any {
	out := Stripped(template)
	if out == nil {
		out = map[string]any{}
	}
	metadata := child(out, "metadata")
	child(metadata, "labels")
	child(metadata, "annotations")
	return out
}

func lastField(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

var element = regexp.MustCompile(`\[[^\]]*\]`)

// isOpen says whether everybody may see the values at a path.
func isOpen(path string) bool {
	if _, annotation, ok := strings.Cut(path, "metadata.annotations."); ok {
		return slices.Contains(openAnnotations, annotation)
	}
	return slices.ContainsFunc(strings.Split(element.ReplaceAllString(path, ""), "."), func(field string) bool { return slices.Contains(open, field) })
}

func isScalar(v any) bool {
	switch v.(type) {
	case nil, map[string]any, []any:
		return false
	}
	return true
}

// shown is a value in a line; of what has parts, nothing but that it is there.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case map[string]any:
		return "{…}"
	case []any:
		return "[…]"
	case string:
		if strings.Contains(v, "://") {
			return source.Redact(v)
		}
		return cut(v)
	}
	return cut(fmt.Sprint(v))
}

func cut(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= longestValue {
		return text
	}
	return strings.ToValidUTF8(text[:longestValue], "") + "…"
}
