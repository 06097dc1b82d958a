package start

import (
	"fmt"
	"strings"
)

// Counted is a number of things: "1 step", "2 steps".
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// MaxDetailLines bounds the page of a task in the Temporal UI, which travels in an address.
const MaxDetailLines = 20

// OrDash is the text, or a dash where there is none.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Cut keeps a text at most so many bytes long.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// Summary is a workflow's summary, which the Temporal UI shows above its timeline. It cannot change, so it says where to find what the
// workflow waits for.
func Summary(text string) string {
	const most, where = 200, " (what it waits for: see User Metadata)"
	return Cut(text, most-len(where)) + where
}
