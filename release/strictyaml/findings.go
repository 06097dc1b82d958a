package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Findings collects what is wrong with one document, and knows on which line each field stands.
// The zero value serves a document that was not read from text: its errors have no lines.
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

// Unreadable says whether the field, or what it stands in, could not be read, so that its value means nothing.
func (f *Findings) Unreadable(field string) bool {
	for path := field; ; {
		if f.unreadable[path] {
			return true
		}
		if path == "" {
			return false
		}
		path = parent(path)
	}
}

// Line is the line of the field, or of what it would stand in when it is absent; 0: not known.
func (f *Findings) Line(field string) int {
	for path := field; ; {
		if line, ok := f.lines[path]; ok {
			return line
		}
		if path == "" {
			return 0
		}
		path = parent(path)
	}
}

// Sorted are all errors in the order of the document.
func (f *Findings) Sorted() Errors {
	slices.SortStableFunc(f.errors, func(a, b FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Item, b.Item))
	})
	return f.errors
}

// cannotRead records that the field has no usable value.
func (f *Findings) cannotRead(item int, field, format string, args ...any) {
	f.add(item, field, format, args...)
	if f.unreadable == nil {
		f.unreadable = map[string]bool{}
	}
	f.unreadable[field] = true
}

func (f *Findings) add(item int, field, format string, args ...any) {
	f.errors = append(f.errors, FieldError{Item: item, Field: field, Line: f.Line(field), Reason: fmt.Sprintf(format, args...)})
}

func (f *Findings) place(field string, line int) {
	if f.lines == nil {
		f.lines = map[string]int{}
	}
	f.lines[field] = line
}

// parent is the path without its last part.
func parent(path string) string {
	cut := strings.LastIndexAny(path, ".[")
	if cut < 0 {
		return ""
	}
	return path[:cut]
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
