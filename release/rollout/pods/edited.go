package pods

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

const maxEdited = 3

// Edited names the fields in which one pod template differs from another, as people know them: "image of container app (x:2, was x:1)",
// "spec.nodeSelector". Only images are told with their values: others may hold secrets.
func Edited(was, now map[string]any) string {
	fields := differing(nil, "", was, now)
	if more := len(fields) - maxEdited; more > 0 {
		return strings.Join(fields[:maxEdited], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(fields, ", ")
}

// differing adds the differences of two values at a path.
func differing(found []string, path string, was, now any) []string {
	if reflect.DeepEqual(was, now) {
		return found
	}
	a, mapped := was.(map[string]any)
	b, mappedNow := now.(map[string]any)
	if mapped && mappedNow {
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			found = differing(found, strings.TrimPrefix(path+"."+key, "."), a[key], b[key])
		}
		return found
	}
	if x, y, named := byName(was), byName(now), strings.HasSuffix(strings.ToLower(path), "containers"); named && x != nil && y != nil {
		return containers(found, path, x, y)
	}
	return append(found, path)
}

// byName are the elements of a list that have names; nil when it is none.
func byName(v any) map[string]any {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	out := map[string]any{}
	for _, element := range list {
		m, _ := element.(map[string]any)
		name, _ := m["name"].(string)
		if name == "" {
			return nil
		}
		out[name] = m
	}
	return out
}

func containers(found []string, path string, was, now map[string]any) []string {
	names := maps.Clone(was)
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, there := was[name].(map[string]any)
		b, stays := now[name].(map[string]any)
		if !there || !stays {
			found = append(found, fmt.Sprintf("%s[%s]", path, name))
			continue
		}
		if a["image"] != b["image"] {
			found = append(found, fmt.Sprintf("image of container %s (%v, was %v)", name, b["image"], a["image"]))
			a, b = maps.Clone(a), maps.Clone(b)
			delete(a, "image")
			delete(b, "image")
		}
		found = differing(found, fmt.Sprintf("%s[%s]", path, name), a, b)
	}
	return found
}
