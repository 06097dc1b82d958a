// Package strictyaml reads YAML and JSON documents strictly and by nodes: unknown and repeated keys, wrong types and absent values are all errors,
// each with its field and line, and all of them are reported at once.
package strictyaml

import (
	"fmt"
	"strings"
)

// FieldError says what is wrong with one field of a document.
type FieldError struct {
	// Item is the number of the item that the field belongs to, counted from 1; 0: the document as a whole.
	Item int `json:"item,omitempty"`
	// Field is the path of the field, lists counted from 0: "deployPlanItems[2].priority"; "" is the document.
	Field string `json:"field,omitempty"`
	// Line is where the field stands, counted from 1; 0: not known, since the document was not read from text.
	Line int `json:"line,omitempty"`
	// Reason is what is wrong and what to do, to be read after the field's name: "must be a whole number, not \"high\"".
	Reason string `json:"reason"`
}

// Where is the place of the error as people read it: "item 3, line 14, deployPlanItems[2].priority".
func (e FieldError) Where() string {
	var parts []string
	if e.Item > 0 {
		parts = append(parts, fmt.Sprintf("item %d", e.Item))
	}
	if e.Line > 0 {
		parts = append(parts, fmt.Sprintf("line %d", e.Line))
	}
	if e.Field != "" {
		parts = append(parts, e.Field)
	}
	if len(parts) == 0 {
		return "the document"
	}
	return strings.Join(parts, ", ")
}

// Error is place and reason in one line.
func (e FieldError) Error() string { return e.Where() + ": " + e.Reason }

// Errors are all that is wrong with a document, in the order of its lines.
type Errors []FieldError

// Error lists all errors, one to a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Err is the list as an error, nil when it is empty: an empty list that is assigned to an error would not be nil.
func (e Errors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}
