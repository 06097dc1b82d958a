package pods

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	mergepatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

// Digest returns the SHA-256 of a pod template's canonical JSON: keys sorted, without nulls.
func Digest(template map[string]any) string {
	return digest.Of(string(jsonpatch.Encode(clean(template))))
}

// containers returns the containers of a pod template, init containers first.
func containers(template map[string]any) (all []map[string]any) {
	for _, list := range []string{"initContainers", "containers"} {
		entries, _, _ := unstructured.NestedFieldNoCopy(template, "spec", list)
		containers, _ := entries.([]any)
		for _, c := range containers {
			container, _ := c.(map[string]any)
			all = append(all, container)
		}
	}
	return all
}

// Images returns the images of a pod template by container name, including init containers.
func Images(template map[string]any) map[string]string {
	images := map[string]string{}
	for _, container := range containers(template) {
		name, _ := container["name"].(string)
		images[name], _ = container["image"].(string)
	}
	return images
}

// Stripped returns a revision's pod template without the key "$patch", which its controller adds.
func Stripped(template map[string]any) map[string]any {
	out, _ := clean(template).(map[string]any)
	delete(out, "$patch")
	return out
}

// restartStamps are the annotations that change a pod template only to get new pods: Slipway's own and kubectl's.
var restartStamps = []string{workload.AnnotationRestartedBy, "kubectl.kubernetes.io/restartedAt"}

// SameButForRestarts reports whether two pod templates are equal except for restart stamps.
func SameButForRestarts(a, b map[string]any) bool {
	return Digest(unstamped(a)) == Digest(unstamped(b))
}

func unstamped(template map[string]any) map[string]any {
	out, _ := clean(template).(map[string]any)
	for _, stamp := range restartStamps {
		jsonpatch.Drop(out, jsonpatch.Annotation(stamp))
	}
	return out
}

// clean returns a deep copy without nulls.
func clean(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if e != nil {
				out[k] = clean(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = clean(e)
		}
		return out
	}
	return v
}

// Apply returns the new version of a pod template and leaves its argument unchanged. Its error is a sentence for users.
// A templatePatch is a strategic merge patch for kinds of apps/v1 and a JSON merge patch (RFC 7386) for others.
func Apply(change strategy.Change, apiVersion string, template map[string]any) (map[string]any, error) {
	copied, _ := clean(template).(map[string]any)
	if len(change.TemplatePatch) == 0 {
		return copied, setImages(change.Images, copied)
	}
	original := jsonpatch.Encode(copied)
	var patched []byte
	var err error
	if apiVersion == appsv1.SchemeGroupVersion.String() {
		patched, err = strategicpatch.StrategicMergePatch(original, change.TemplatePatch, corev1.PodTemplateSpec{})
	} else {
		patched, err = mergepatch.MergePatch(original, change.TemplatePatch)
	}
	if err != nil {
		return nil, fmt.Errorf("the patch cannot be merged into the pod template: %w", err)
	}
	var typed corev1.PodTemplateSpec
	strict := json.NewDecoder(bytes.NewReader(patched))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&typed); err != nil {
		return nil, fmt.Errorf("the patched pod template is not valid: %w", err)
	}
	var out map[string]any
	return out, json.Unmarshal(patched, &out)
}

func setImages(images map[string]string, template map[string]any) error {
	found := map[string]bool{}
	var names []string
	for _, container := range containers(template) {
		name, _ := container["name"].(string)
		names = append(names, name)
		if image, ok := images[name]; ok {
			container["image"], found[name] = image, true
		}
	}
	missing := slices.DeleteFunc(slices.Sorted(maps.Keys(images)), func(name string) bool { return found[name] })
	if len(missing) > 0 {
		return fmt.Errorf("the workload has no container %s; it has %s", strings.Join(missing, ", "),
			strings.Join(names, ", "))
	}
	return nil
}

// WithMetadata returns the pod template of the extra workload: with its own label and what patchPodTemplateMetadata
// adds.
func WithMetadata(template map[string]any, workload string, add *strategy.PodMetadata) map[string]any {
	out, _ := clean(template).(map[string]any)
	jsonpatch.Put(out, jsonpatch.Label(strategy.LabelCanaryOf), strategy.CanaryOf(workload))
	if add == nil {
		return out
	}
	for k, v := range add.Labels {
		jsonpatch.Put(out, jsonpatch.Label(k), v)
	}
	for k, v := range add.Annotations {
		jsonpatch.Put(out, jsonpatch.Annotation(k), v)
	}
	return out
}

const maxEdited = 3

// DescribeEdits names the fields in which two pod templates differ, in familiar words: "image of container app (x:2,
// was x:1)", "spec.nodeSelector". Only images are shown with their values: other values may be secret.
func DescribeEdits(was, now map[string]any) string {
	var fields []string
	for _, d := range appendDifferences(nil, "", was, now, isContainers) {
		fields = append(fields, d.String())
	}
	return phrase.List(fields, maxEdited)
}

// difference is a field in which two pod templates differ.
type difference struct {
	path     string
	was, now any
}

var (
	containerPath  = regexp.MustCompile(`ontainers\[[^\]]*\]$`)
	containerImage = regexp.MustCompile(`ontainers\[([^\]]*)\]\.image$`)
)

func (d difference) String() string {
	if container := containerImage.FindStringSubmatch(d.path); container != nil {
		return fmt.Sprintf("image of container %s (%v, was %v)", container[1], d.now, d.was)
	}
	return d.path
}

func isContainers(path string) bool { return strings.HasSuffix(strings.ToLower(path), "containers") }

// appendDifferences appends the differences of two values at a path. Lists for which byNames is true are compared
// element by element, by name.
func appendDifferences(found []difference, path string, was, now any, byNames func(path string) bool) []difference {
	if reflect.DeepEqual(was, now) {
		return found
	}
	a, mapped := was.(map[string]any)
	b, mappedNow := now.(map[string]any)
	at := func(key string) string { return strings.TrimPrefix(path+"."+key, ".") }
	if !mapped || !mappedNow {
		a, b = nil, nil
		if byNames(path) {
			a, b = byName(was), byName(now)
		}
		if a == nil || b == nil {
			return append(found, difference{path, was, now})
		}
		at = func(name string) string { return path + "[" + name + "]" }
	}
	both := maps.Clone(a)
	maps.Copy(both, b)
	keys := slices.Sorted(maps.Keys(both))
	if i := slices.Index(keys, "image"); i > 0 && containerPath.MatchString(path) { // its image comes first
		keys = slices.Insert(slices.Delete(keys, i, i+1), 0, "image")
	}
	for _, key := range keys {
		found = appendDifferences(found, at(key), a[key], b[key], byNames)
	}
	return found
}

// byName returns the elements of a list by their unique names; nil if an element has no such name or v is not a list.
// nil counts as an empty list.
func byName(v any) map[string]any {
	list, ok := v.([]any)
	if !ok && v != nil {
		return nil
	}
	out := map[string]any{}
	for _, element := range list {
		m, _ := element.(map[string]any)
		name, _ := m["name"].(string)
		if _, taken := out[name]; taken || name == "" {
			return nil
		}
		out[name] = m
	}
	return out
}

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
	"securityContext", "serviceAccountName", "mountPath", "subPath", "readOnly", "restartPolicy",
	"terminationGracePeriodSeconds", "hostNetwork", "dnsPolicy", "schedulerName", "priorityClassName"}

// publicAnnotations are the annotations whose values may be shown.
var publicAnnotations = append([]string{source.AnnotationPackage, source.AnnotationDeployed}, restartStamps...)

// ChangedFields returns the fields in which two pod templates differ, with their values where these cannot be secret.
// Queries of URLs are left out.
func ChangedFields(was, now map[string]any) []workload.FieldChange {
	var out []workload.FieldChange
	all := appendDifferences(nil, "", withMetadataMaps(was), withMetadataMaps(now), func(path string) bool {
		return slices.Contains(namedLists, path[strings.LastIndexByte(path, '.')+1:])
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
	for _, part := range []string{"/metadata/labels", "/metadata/annotations"} {
		if _, there := jsonpatch.At(out, part); !there {
			jsonpatch.Put(out, part, map[string]any{})
		}
	}
	return out
}

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
