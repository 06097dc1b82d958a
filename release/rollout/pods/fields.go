package pods

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

const (
	// maxChanges bounds the reported changes of one workload, maxValueLength the characters of a value: they pass
	// through a workflow's history.
	maxChanges, maxValueLength = 40, 160
)

// namedLists are the lists of a pod template whose elements have names.
var namedLists = []string{"containers", "initContainers", "env", "volumes", "volumeMounts", "ports", "imagePullSecrets"}

// publicFields are the fields whose values may be shown, with everything below them. Values of other fields, such as
// the environment, commands and probes, may be secret.
var publicFields = []string{"image", "imagePullPolicy", "resources", "ports", "labels", "nodeSelector",
	"securityContext", "serviceAccountName", "mountPath",
	"subPath", "readOnly", "restartPolicy", "terminationGracePeriodSeconds", "hostNetwork", "dnsPolicy",
	"schedulerName", "priorityClassName"}

// publicAnnotations are the annotations whose values may be shown.
var publicAnnotations = append([]string{source.AnnotationPackage, source.AnnotationDeployed}, restartStamps...)

// ChangedFields returns the fields in which two pod templates differ, with their values where these cannot be secret.
// Queries of URLs are left out.
func ChangedFields(was, now map[string]any) []workload.FieldChange {
	var out []workload.FieldChange
	all := appendDifferences(nil, "", withMetadataMaps(was), withMetadataMaps(now), func(path string) bool {
		return slices.Contains(namedLists, lastField(path))
	})
	for i, d := range all {
		if i == maxChanges {
			return append(out, workload.FieldChange{Field: fmt.Sprintf("and %d more", len(all)-i)})
		}
		change := workload.FieldChange{Field: d.path, From: displayValue(d.was), To: displayValue(d.now)}
		if !isPublic(d.path) && (isScalar(d.was) || isScalar(d.now) || d.was != nil && d.now != nil) {
			change.From, change.To, change.Hidden = "", "", true
		}
		out = append(out, change)
	}
	return out
}

// withMetadataMaps returns a copy of a template that always has labels and annotations, so that they are compared entry
// by entry.
func withMetadataMaps(template map[string]any) map[string]any {
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

var indexPattern = regexp.MustCompile(`\[[^\]]*\]`)

// isPublic reports whether the values at a path may be shown.
func isPublic(path string) bool {
	if _, annotation, ok := strings.Cut(path, "metadata.annotations."); ok {
		return slices.Contains(publicAnnotations, annotation)
	}
	return slices.ContainsFunc(strings.Split(indexPattern.ReplaceAllString(path, ""), "."), func(field string) bool {
		return slices.Contains(publicFields, field)
	})
}

func isScalar(v any) bool {
	switch v.(type) {
	case nil, map[string]any, []any:
		return false
	}
	return true
}

// displayValue returns a value as one line; objects and lists are only indicated.
func displayValue(v any) string {
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
	}
	return phrase.Line(fmt.Sprint(v), maxValueLength)
}
