// Package cel writes parts of CEL expressions, the language of Kubernetes' admission policies. Fields that may be
// absent are selected with ".?", which yields an optional value.
package cel

import (
	"fmt"
	"strings"
)

// Label returns an expression for the optional value of an object's label.
func Label(object, name string) string { return entry(object, "labels", name) }

// Annotation returns an expression for the optional value of an object's annotation.
func Annotation(object, name string) string { return entry(object, "annotations", name) }

func entry(object, part, name string) string {
	return fmt.Sprintf("%s.metadata.?%s[?%s]", object, part, Text(name))
}

// Text returns a text as a CEL string literal.
func Text(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s) + "'"
}

// Field returns an expression for the optional value at a JSON Pointer of an object.
func Field(object, pointer string) string {
	return object + ".?" + strings.Join(strings.Split(strings.TrimPrefix(pointer, "/"), "/"), ".?")
}

// Members returns an expression for the members of an optional object; an absent object and null have none.
func Members(optional string) string {
	return "optional.ofNonZeroValue(" + optional + ".orValue(dyn(null))).orValue({})"
}

// maxSteps is the maximum number of steps of a strategy, as in the schemas.
const maxSteps = 50

// Pairs returns an expression that is true if a condition holds for the indexes i and i + 1 of all neighbours in a list
// of steps.
func Pairs(list, condition string) string {
	var indexes []string
	for i := range maxSteps - 1 {
		indexes = append(indexes, fmt.Sprint(i))
	}
	return fmt.Sprintf("[%s].all(i, i + 1 >= size(%s) || %s)", strings.Join(indexes, ", "), list, condition)
}
