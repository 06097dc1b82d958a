package pods

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"slipway.io/slipway/release/phrase"
)

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
	// container is the container whose image differs, "" for another field.
	container string
}

func (d difference) String() string {
	if d.container != "" {
		return fmt.Sprintf("image of container %s (%v, was %v)", d.container, d.now, d.was)
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
	if mapped && mappedNow {
		for _, key := range unionKeys(a, b) {
			found = appendDifferences(found, strings.TrimPrefix(path+"."+key, "."), a[key], b[key], byNames)
		}
		return found
	}
	if !byNames(path) {
		return append(found, difference{path: path, was: was, now: now})
	}
	x, y := byName(was), byName(now)
	if x == nil || y == nil {
		return append(found, difference{path: path, was: was, now: now})
	}
	return appendElementDifferences(found, path, x, y, byNames)
}

func unionKeys(a, b map[string]any) []string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
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

func appendElementDifferences(found []difference, path string, was, now map[string]any,
	byNames func(path string) bool) []difference {
	for _, name := range unionKeys(was, now) {
		at := fmt.Sprintf("%s[%s]", path, name)
		a, there := was[name].(map[string]any)
		b, stays := now[name].(map[string]any)
		if !there || !stays {
			found = append(found, difference{path: at, was: was[name], now: now[name]})
			continue
		}
		if a["image"] != b["image"] && isContainers(path) {
			found = append(found, difference{path: at + ".image", was: a["image"], now: b["image"], container: name})
			a, b = maps.Clone(a), maps.Clone(b)
			delete(a, "image")
			delete(b, "image")
		}
		found = appendDifferences(found, at, a, b, byNames)
	}
	return found
}
