package plan

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/race"
)

// hostileSize is the largest size of a document.
const hostileSize = 3 << 19

// filled returns a document of almost hostileSize bytes: begin, as many parts as fit, and end.
func filled(begin, part, end string) string {
	return begin + strings.Repeat(part, (hostileSize-len(begin)-len(end))/len(part)) + end
}

// A document is refused in a time and with a memory that its size does not multiply.
func TestDecode_BoundsTimeAndMemory_OfHostileDocuments(t *testing.T) {
	race.SkipBounds(t)
	const begin = "deployPlanItems:\n"
	large := strings.Repeat("- {a: 1, b: 2}\n", 9_000) // almost as many nodes as are legal
	for name, test := range map[string]struct{ reason, text, contains string }{
		"Values": {"Each value of a list is an item.", filled("deployPlanItems: [a", ",a", "]"), "50000 keys and values"},
		"JSON":   {"The same in JSON.", filled(`{"deployPlanItems":["a"`, `,"a"`, "]}"), "50000 keys and values"},
		"JSONNumbers": {"The shortest values of JSON.", filled(`{"deployPlanItems":[1`, ",1", "]}"),
			"50000 keys and values"},
		"Mappings":    {"Each mapping is an item.", filled(begin, "- {x: 1}\n", ""), "50000 keys and values"},
		"Tab":         {"The last line is wrong.", filled(begin, "- {x: 1}\n", "\t- {x: 1}\n"), "50000 keys and values"},
		"EmptyPairs":  {"Most nodes for a byte.", filled("a: [", ":,", "]"), "50000 keys and values"},
		"Sequences":   {"A list in a list.", filled("a:\n", "- - - - - - a\n", ""), "50000 keys and values"},
		"Comments":    {"Comments are kept too.", filled(begin, "#\n", ""), "50000 keys and values"},
		"OpenBracket": {"A bracket that is never closed.", filled("a: [", "a,", ""), "50000 keys and values"},
		"Markers":     {"Many documents.", filled("", "--- a\n", ""), "50000 keys and values"},
		"LargeTab": {"A long text, as many values as are legal, and the wrong last line.",
			filled(begin+large+"b: '", "x\n ", "'\n\tc: 1\n"), "indented with a tab"},
		"LargeOpen": {"The same with a quote that is never closed.", filled(begin+large+"b: '", "x\n ", "\n"),
			"unexpected end of stream"},
		"Items": {"More items than a plan has.", begin + strings.Repeat("- a\n", 40_000),
			"has 40000 items: a plan has at most 1000"},
		"Keys": {"Many unknown keys.", strings.Repeat("deployPlanItem%: 1\n", 1) + begin + "- a\n" + unknownKeys(20_000),
			"unknown key"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			_, _, errs := Decode([]byte(test.text))
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%d bytes: %s, %d MiB, %d errors", len(test.text), took, allocated, len(errs))
			require.NotEmpty(t, errs, test.reason)
			require.Contains(t, errs[:min(len(errs), 101)].Error(), test.contains, test.reason)
			require.LessOrEqual(t, len(errs), 101, test.reason)
			require.Less(t, took, 10*time.Second, test.reason)
			require.Less(t, allocated, uint64(256), "MiB in all: %s", test.reason)
		})
	}
}

func unknownKeys(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "deployPlanItm%d: 1\n", i)
	}
	return text.String()
}
