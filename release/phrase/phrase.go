// Package phrase formats what many messages contain: numbers of things, lists, times, and texts of limited length.
package phrase

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Count formats a number of things: "1 party", "3 parties".
func Count(n int, noun string) string { return CountOf(n, noun, Plural(noun)) }

// CountOf is Count with the words for one thing and for several: "1 pod is", "3 pods are".
func CountOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Plural returns the plural of a noun: "services", "parties", "matches".
func Plural(noun string) string {
	if stem, found := strings.CutSuffix(noun, "y"); found {
		return stem + "ies"
	}
	if strings.HasSuffix(noun, "ch") {
		return noun + "es"
	}
	return noun + "s"
}

// List names at most this many things: "a, b and 3 more".
func List(names []string, most int) string {
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Time formats a time in UTC: "2026-07-01T10:00:00Z".
func Time(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// Cut shortens a text to at most this many bytes, the last of which are an ellipsis. It splits no character.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// Line is Cut for a text that it makes one line first.
func Line(text string, most int) string { return Cut(strings.Join(strings.Fields(text), " "), most) }

// markdownEscaper escapes the characters that have a meaning in Markdown.
var markdownEscaper = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", "`", "\\`", "*", "\\*", "[", "\\[",
	"]", "\\]")

// Markdown returns a text as one line of Markdown, in which it has no links, images, HTML or code.
func Markdown(text string) string {
	return markdownEscaper.Replace(strings.Join(strings.Fields(text), " "))
}

// addresses match what Temporal's UI makes links of: the colon of "https://", the "www" of "www.".
var addresses = regexp.MustCompile(`(?i)(:)(//)|(www)(\.)`)

// Inert is Markdown for text of users on a page that others read, truncated to most bytes: addresses have a word joiner
// inserted, so that they don't become links.
func Inert(text string, most int) string {
	return Cut(addresses.ReplaceAllString(Markdown(text), "$1$3\u2060$2$4"), most)
}

// Each returns the text of each element of a list.
func Each[T any](list []T, text func(T) string) []string {
	all := make([]string, len(list))
	for i, element := range list {
		all[i] = text(element)
	}
	return all
}
