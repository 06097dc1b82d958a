package main

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// displayWidth is how many columns of a terminal the text takes: Chinese characters take two, accents of their own none.
func displayWidth(text string) int {
	columns := 0
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// padded fills the text with blanks up to that many columns.
func padded(text string, columns int) string {
	return text + strings.Repeat(" ", max(columns-displayWidth(text), 0))
}

// clipped cuts the text to that many columns and marks the cut.
func clipped(text string, columns int) string {
	if displayWidth(text) <= columns {
		return text
	}
	return beginning(text, columns-1) + "…"
}

// beginning is as much of the text as fits into that many columns.
func beginning(text string, columns int) string {
	used := 0
	for at, r := range text {
		if used += runeWidth(r); used > columns {
			return text[:at]
		}
	}
	return text
}

// oneLine makes text of any origin safe to print: line breaks and control characters, which could move the cursor, become blanks.
func oneLine(text string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control) {
			return ' '
		}
		return r
	}, text)
	return strings.TrimSpace(clean)
}
