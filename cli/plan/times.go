package plan

import (
	"fmt"
	"strings"

	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/window"
)

// timesText returns the times of a plan, one per line; "" if it has none.
func timesText(times window.Times) string {
	var text strings.Builder
	if times.NotBefore != "" {
		fmt.Fprintf(&text, "not before %s\n", render.OneLine(times.NotBefore))
	}
	for _, w := range times.Windows {
		fmt.Fprintf(&text, "within a window %s\n", render.OneLine(w.String()))
	}
	for _, w := range times.Freezes {
		fmt.Fprintf(&text, "outside a freeze %s\n", render.OneLine(w.String()))
	}
	return text.String()
}
