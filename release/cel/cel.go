// Package cel writes pieces of expressions in CEL, the language of Kubernetes' admission policies. Fields that may be absent are chosen
// with ".?", which yields an optional value.
package cel

import (
	"fmt"
	"strings"
)

// Label is the optional value of a label of an object.
func Label(object, name string) string { return entry(object, "labels", name) }

// Annotation is the optional value of an annotation of an object.
func Annotation(object, name string) string { return entry(object, "annotations", name) }

func entry(object, part, name string) string {
	return fmt.Sprintf("%s.metadata.?%s[?%s]", object, part, Text(name))
}

// Text is a text in CEL.
func Text(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s) + "'"
}

// Field is the optional value at a JSON Pointer of an object.
func Field(object, pointer string) string {
	return object + ".?" + strings.Join(strings.Split(strings.TrimPrefix(pointer, "/"), "/"), ".?")
}

// Members is an optional object's content; an absent one and null have none.
func Members(optional string) string {
	return "optional.ofNonZeroValue(" + optional + ".orValue(dyn(null))).orValue({})"
}
