// Package strictyaml reads YAML and JSON documents strictly and by nodes: it reports all errors at once, up to a
// hundred, each with its field and line. What it makes of a hostile document is bounded.
package strictyaml

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"slipway.io/slipway/release/phrase"
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
	return strings.Join(phrase.Each(e, FieldError.Error), "\n")
}

// Err returns the list as an error, nil if it is empty: an empty Errors assigned to an error would not be nil.
func (e Errors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// maxFindings is the maximum number of errors that are listed for one document.
const maxFindings = 100

// cut is the last of the Errors of a document that has more than maxFindings.
var cut = FieldError{Reason: fmt.Sprintf("has more errors: only the first %d are listed; correct them, and check again",
	maxFindings)}

// Cut reports whether the document has more errors than are listed.
func (e Errors) Cut() bool { return len(e) > 0 && e[len(e)-1] == cut }

// Findings collects the errors of one document. Those of a text are limited to maxFindings. The zero value is for a
// document that was not read from text: its errors have no lines, and no limit.
type Findings struct {
	errors     Errors
	lines      map[string]int
	unreadable map[string]bool
	// foreign says what keys of other products are called here.
	foreign map[string]string
	// more is set if there were more errors.
	more bool
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

// Sorted returns the errors in the order of the document, and at the end that there are more.
func (f *Findings) Sorted() Errors {
	slices.SortStableFunc(f.errors, func(a, b FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Item, b.Item))
	})
	if f.more {
		return append(slices.Clip(f.errors), cut)
	}
	return f.errors
}

func (f *Findings) add(item int, field, format string, args ...any) {
	if f.hasRoom() {
		f.errors = append(f.errors, FieldError{Item: item, Field: field, Line: f.Line(field),
			Reason: fmt.Sprintf(format, args...)})
	}
}

// hasRoom reports whether an error that was just found is listed.
func (f *Findings) hasRoom() bool {
	room := f.lines == nil || len(f.errors) < maxFindings
	f.more = f.more || !room
	return room
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

func repeatedKey(first, again int) string {
	if first == again {
		return "appears twice: keep one"
	}
	return fmt.Sprintf("appears twice (lines %d and %d): keep one", first, again)
}

// NameForeign sets what keys of other products are called in this document, to be read after "unknown key …:".
func (f *Findings) NameForeign(keys map[string]string) { f.foreign = keys }

func (f *Findings) unknownKey(key string, known []string) string {
	near := Nearest(key, known)
	switch here := f.foreign[key]; {
	case here != "":
		return fmt.Sprintf("unknown key %s: %s; the keys here are %s", Quote(key), here, strings.Join(known, ", "))
	case near == "":
		return fmt.Sprintf("unknown key %s: the keys here are %s", Quote(key), strings.Join(known, ", "))
	case strings.EqualFold(near, key):
		return fmt.Sprintf("unknown key %s: did you mean %q? Keys are case-sensitive", Quote(key), near)
	}
	return fmt.Sprintf("unknown key %s: did you mean %q?", Quote(key), near)
}

// List joins words for messages: "a, b, c".
func List[T ~string](words []T) string {
	return strings.Join(phrase.Each(words, func(word T) string { return string(word) }), ", ")
}

// DidYouMean returns ": did you mean …?" with the nearest known word, "" if none is near.
func DidYouMean[T ~string](word string, known []T) string {
	if near := Nearest(word, known); near != "" {
		return fmt.Sprintf(": did you mean %s?", near)
	}
	return ""
}

// Nearest returns the known word that was probably meant: one that differs only in case, blanks, "-" and "_", otherwise
// the one with the fewest corrections, or "".
func Nearest[T ~string](word string, known []T) T {
	bare := bareWord(word)
	for _, candidate := range known {
		if bare != "" && bareWord(string(candidate)) == bare {
			return candidate
		}
	}
	best, fewest := T(""), maxCorrections(word)+1
	for _, candidate := range known {
		if n := distance(strings.ToLower(word), strings.ToLower(string(candidate)), fewest); n < fewest {
			best, fewest = candidate, n
		}
	}
	return best
}

// maxCorrections returns how many corrections are allowed in a misspelt word of this length: a short word soon becomes
// another one.
func maxCorrections(word string) int {
	switch length := utf8.RuneCountInString(word); {
	case length < 3:
		return 0
	case length < 6:
		return 1
	}
	return 2
}

var joiners = strings.NewReplacer("-", "", "_", "", " ", "")

func bareWord(word string) string { return strings.ToLower(joiners.Replace(word)) }

// distance returns the number of insertions, deletions, replacements and swaps between two words, or limit if their
// lengths already differ by it.
func distance(a, b string, limit int) int {
	from, to := []rune(a), []rune(b)
	if d := len(from) - len(to); d >= limit || -d >= limit {
		return limit
	}
	rows := make([][]int, len(from)+1)
	for i := range rows {
		rows[i] = make([]int, len(to)+1)
		rows[i][0] = i
		for j := 1; j <= len(to); j++ {
			switch {
			case i == 0:
				rows[i][j] = j
			case from[i-1] == to[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j], rows[i][j-1], rows[i-1][j-1])
			}
			if i > 1 && j > 1 && from[i-1] == to[j-2] && from[i-2] == to[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(from)][len(to)]
}
