// Package strictyaml reads YAML and JSON documents strictly and by nodes: it reports all errors at once, each with its
// field and line.
package strictyaml

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// FieldError is what is wrong with one field of a document.
type FieldError struct {
	// Field is the path of the field, with list indexes from 0: "deployPlanItems[2].priority"; "" is the document.
	Field string `json:"field"`
	// Item is the number of the item that the field belongs to, counted from 1; 0: the document itself.
	Item int `json:"item,omitempty"`
	// Line is the line of the field, counted from 1; 0: unknown, because the document was not read from text.
	Line int `json:"line,omitempty"`
	// Reason is what is wrong and what to do, to be read after the field's name: "must be a whole number, not
	// \"high\"".
	Reason string `json:"reason"`
}

// Where returns the position of the error for messages: "item 3, line 14, deployPlanItems[2].priority".
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

// Error returns position and reason in one line.
func (e FieldError) Error() string { return e.Where() + ": " + e.Reason }

// Errors are all errors in a document, in the order of its lines.
type Errors []FieldError

// Error lists all errors, one per line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Err returns the list as an error, nil if it is empty: an empty Errors assigned to an error would not be nil.
func (e Errors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Findings collects the errors of one document. The zero value is for a document that was not read from text: its
// errors have no lines.
type Findings struct {
	errors     Errors
	lines      map[string]int
	unreadable map[string]bool
}

// Refuse records that a field breaks a rule. It ignores a field that could not be read, because that error is already
// recorded.
func (f *Findings) Refuse(item int, field, format string, args ...any) {
	if !f.Unreadable(field) {
		f.add(item, field, format, args...)
	}
}

// Check records the error that a rule returned for a field; nil records nothing.
func (f *Findings) Check(item int, field string, err error) {
	if err != nil {
		f.Refuse(item, field, "%s", err)
	}
}

// Unreadable reports whether the field, or a field around it, could not be read, so that its value is meaningless.
func (f *Findings) Unreadable(field string) bool {
	for path := range enclosingPaths(field) {
		if f.unreadable[path] {
			return true
		}
	}
	return false
}

// Line returns the line of the field, or of the nearest field around it if it is absent; 0: unknown.
func (f *Findings) Line(field string) int {
	for path := range enclosingPaths(field) {
		if line, ok := f.lines[path]; ok {
			return line
		}
	}
	return 0
}

// enclosingPaths returns the path of a field and of every field around it; the last is "", the document.
func enclosingPaths(field string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(field) && field != "" {
			field = field[:max(strings.LastIndexAny(field, ".["), 0)]
		}
	}
}

// Sorted returns all errors in the order of the document.
func (f *Findings) Sorted() Errors {
	slices.SortStableFunc(f.errors, func(a, b FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Item, b.Item))
	})
	return f.errors
}

func (f *Findings) add(item int, field, format string, args ...any) {
	f.errors = append(f.errors, FieldError{Item: item, Field: field, Line: f.Line(field),
		Reason: fmt.Sprintf(format, args...)})
}

// Join returns the path of a key in a field.
func Join(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

// Index returns the path of entry n, counted from 0, of the list in a field.
func Index(field string, n int) string { return fmt.Sprintf("%s[%d]", field, n) }
