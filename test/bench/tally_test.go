package bench

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

// maxCounted is the maximum number of simultaneous releases whose requests are counted one by one. The counting proxy
// takes as much CPU as the engine. For the sizes with published times, only the API server's own counters are used.
const maxCounted = 20

// tally is the number of requests of an engine; the zero value counts none.
type tally struct {
	proxy       *harness.CountingProxy
	write, read map[string]int
}

// stackOf returns the stack for an engine with n simultaneous releases, and the tally of its requests.
func stackOf(t *testing.T, n int) (harness.Stack, tally) {
	stack := harness.SharedStack(t)
	if n > maxCounted {
		return stack, tally{}
	}
	proxy := harness.NewCountingProxy(t, stack)
	stack.Kubeconfig = proxy.Kubeconfig
	return stack, tally{proxy: proxy}
}

// snapshot returns the current tally.
func (c tally) snapshot() tally {
	if c.proxy != nil {
		c.write, c.read = c.proxy.RequestsByResource("write"), c.proxy.RequestsByResource("read")
	}
	return c
}

// check prints the requests since another tally per release, and requires at most that many writes for each.
func (c tally) check(t *testing.T, since tally, n, most int) {
	if c.proxy == nil {
		return
	}
	writes, reads := requestsSince(since.write, c.write), requestsSince(since.read, c.read)
	each := float64(writes) / float64(n)
	recordFigure(t, "requests of ours for each", float64(writes+reads)/float64(n))
	fmt.Printf("  API requests of ours for each: %.1f writes (at most %d), %.1f reads\n", each, most,
		float64(reads)/float64(n))
	printRequests("write", since.write, c.write)
	printRequests("read", since.read, c.read)
	require.LessOrEqual(t, each, float64(most), "a release writes too often")
}

// requestsSince returns the number of requests in after that are not in before.
func requestsSince(before, after map[string]int) (n int) {
	for what := range after {
		n += after[what] - before[what]
	}
	return n
}

// printRequests prints the new requests by resource.
func printRequests(kind string, before, after map[string]int) {
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if n := after[what] - before[what]; n > 0 {
			fmt.Printf("    %s: %d × %s\n", kind, n, what)
		}
	}
}
