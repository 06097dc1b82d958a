package jsonpatch

import "strings"

var (
	escaper   = strings.NewReplacer("~", "~0", "/", "~1")
	unescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

// Escape spells a key as one step of a pointer.
func Escape(key string) string { return escaper.Replace(key) }

// Annotation is the pointer to an object's annotation.
func Annotation(name string) string { return "/metadata/annotations/" + Escape(name) }

// Label is the pointer to an object's label.
func Label(name string) string { return "/metadata/labels/" + Escape(name) }

func steps(pointer string) []string {
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, p := range parts {
		parts[i] = unescaper.Replace(p)
	}
	return parts
}

// At is the value at a pointer; there says whether it exists.
func At(object map[string]any, pointer string) (value any, there bool) {
	value = object
	for _, name := range steps(pointer) {
		m, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, there = m[name]; !there {
			return nil, false
		}
	}
	return value, true
}

// Put sets the value at a pointer, making the objects on the way.
func Put(object map[string]any, pointer string, value any) {
	path := steps(pointer)
	for _, name := range path[:len(path)-1] {
		next, ok := object[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			object[name] = next
		}
		object = next
	}
	object[path[len(path)-1]] = value
}

// Drop removes the value at a pointer, and a map of annotations or labels that is empty then, as the API server does.
func Drop(object map[string]any, pointer string) {
	path := steps(pointer)
	last := len(path) - 1
	parent := members(object, path[:last])
	delete(parent, path[last])
	if len(parent) == 0 && last == 2 && path[0] == "metadata" {
		delete(members(object, path[:1]), path[1])
	}
}

// members is the object at a path, nil when there is none.
func members(object map[string]any, path []string) map[string]any {
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	return object
}
