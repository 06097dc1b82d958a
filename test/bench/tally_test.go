package bench

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

// mostCounted is how many releases at once are counted request by request. What counts stands between the engine and the API server, and takes as much of a
// processor as the engine: of the sizes that times are told for, only the API server counts.
const mostCounted = 20

// tally is how many requests an engine has made; the zero value counts none.
type tally struct {
	proxy       *harness.CountingProxy
	write, read map[string]int
}

// stackOf is the stack for an engine that begins so many releases at once, and the tally of its requests.
func stackOf(t *testing.T, n int) (harness.Stack, tally) {
	stack := harness.SharedStack(t)
	if n > mostCounted {
		return stack, tally{}
	}
	proxy := harness.NewCountingProxy(t, stack)
	stack.Kubeconfig = proxy.Kubeconfig
	return stack, tally{proxy: proxy}
}

// now is the tally as it is by now.
func (c tally) now() tally {
	if c.proxy != nil {
		c.write, c.read = c.proxy.Asked("write"), c.proxy.Asked("read")
	}
	return c
}

// check prints what came since another tally, for each of n releases, which write so often at most.
func (c tally) check(t *testing.T, since tally, n, most int) {
	if c.proxy == nil {
		return
	}
	writes, reads := asked(since.write, c.write), asked(since.read, c.read)
	each := float64(writes) / float64(n)
	noted(t, "requests of ours for each", float64(writes+reads)/float64(n))
	fmt.Printf("  API requests of ours for each: %.1f writes (at most %d), %.1f reads\n", each, most, float64(reads)/float64(n))
	printAsked("write", since.write, c.write)
	printAsked("read", since.read, c.read)
	require.LessOrEqual(t, each, float64(most), "a release writes little")
}

// asked is how many requests came on top of those of before.
func asked(before, after map[string]int) (n int) {
	for what := range after {
		n += after[what] - before[what]
	}
	return n
}

// printAsked says which they are.
func printAsked(kind string, before, after map[string]int) {
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if n := after[what] - before[what]; n > 0 {
			fmt.Printf("    %s: %d × %s\n", kind, n, what)
		}
	}
}
