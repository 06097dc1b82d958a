// Package strictyaml reads YAML and JSON documents strictly and by nodes: it reports all errors at once, each with its field and line.
package strictyaml

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// FieldError says what is wrong with one field of a document.
type FieldError struct {
	// Field is the path of the field, lists counted from 0: "deployPlanItems[2].priority"; "" is the document.
	Field string `json:"field"`
	// Item is the number of the item that the field belongs to, counted from 1; 0: the document as a whole.
	Item int `json:"item,omitempty"`
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

// Findings collects what is wrong with one document. The zero value is for a document that wasn't read from text: its errors have no
// lines.
type Findings struct {
	errors     Errors
	lines      map[string]int
	unreadable map[string]bool
}

// Refuse records that a rule is broken. A field that could not be read is passed over: what is wrong with it was already said.
func (f *Findings) Refuse(item int, field, format string, args ...any) {
	if !f.Unreadable(field) {
		f.add(item, field, format, args...)
	}
}

// Check records what a rule found wrong with a field; nil is nothing.
func (f *Findings) Check(item int, field string, err error) {
	if err != nil {
		f.Refuse(item, field, "%s", err)
	}
}

// Unreadable says whether the field, or what it stands in, could not be read, so that its value means nothing.
func (f *Findings) Unreadable(field string) bool {
	for path := range outwards(field) {
		if f.unreadable[path] {
			return true
		}
	}
	return false
}

// Line is the line of the field, or of what it would stand in when it is absent; 0: not known.
func (f *Findings) Line(field string) int {
	for path := range outwards(field) {
		if line, ok := f.lines[path]; ok {
			return line
		}
	}
	return 0
}

// outwards are the path of a field and of all that it stands in; the last is "", the document.
func outwards(field string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(field) && field != "" {
			field = field[:max(strings.LastIndexAny(field, ".["), 0)]
		}
	}
}

// Sorted are all errors in the order of the document.
func (f *Findings) Sorted() Errors {
	slices.SortStableFunc(f.errors, func(a, b FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Item, b.Item))
	})
	return f.errors
}

func (f *Findings) add(item int, field, format string, args ...any) {
	f.errors = append(f.errors, FieldError{Item: item, Field: field, Line: f.Line(field), Reason: fmt.Sprintf(format, args...)})
}

// Join is the path of a key within the field.
func Join(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

// Index is the path of entry n, counted from 0, of the list in the field.
func Index(field string, n int) string { return fmt.Sprintf("%s[%d]", field, n) }
