package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFit_WrapsLongLines(t *testing.T) {
	t.Parallel()
	cause := "pod web-7c9-x2x: ImagePullBackOff: registry.example/shop/web:tpyo: manifest unknown"
	line := Line{{Text: "  state", Colour: Red}, {Text: ": " + cause}}
	layout := func() []Line { return []Line{line} }
	for _, width := range []int{30, 40, 80, 120} {
		drawn := Drawing{}.Fit(width, 10, layout)
		for _, l := range drawn {
			require.Less(t, DisplayWidth(l), width, "no line reaches the edge of the terminal: %q", l)
		}
		text := strings.Join(strings.Fields(strings.Join(drawn, " ")), "")
		require.Contains(t, text, strings.ReplaceAll(cause, " ", ""), "nothing of the cause is lost at %d columns",
			width)
	}
	require.Equal(t, []string{"  state: pod web-7c9-x2x: ImagePullBackOff:",
		"      registry.example/shop/web:tpyo: manifest",
		"      unknown"},
		Drawing{}.Fit(48, 10, layout), "lines break between words, and continuations are indented")
}

func TestFit_UsesFirstLayoutThatFits(t *testing.T) {
	t.Parallel()
	many := func() []Line { return []Line{{{Text: "head"}}, {{Text: "one"}}, {{Text: "two"}}, {{Text: "three"}}} }
	few := func() []Line { return []Line{{{Text: "head"}}, {{Text: "one " + strings.Repeat("x ", 20)}}} }
	require.Len(t, Drawing{}.Fit(80, 4, many, few), 4, "the first layout fits")
	require.Equal(t, "head", Drawing{}.Fit(80, 3, many, few)[0])
	require.Len(t, Drawing{}.Fit(80, 3, many, few), 2, "the second layout is used if the first does not fit")
	require.Equal(t, []string{"head", "one x x x…"}, Drawing{}.Fit(11, 2, many, few),
		"a line is cut if there is no room to wrap it")
	require.Equal(t, []string{"head", "  … and 3 more lines"}, Drawing{}.Fit(80, 2, many), "omitted lines are counted")
}
