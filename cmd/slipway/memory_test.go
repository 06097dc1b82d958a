package main

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABurstIsOverOnce(t *testing.T) {
	t.Parallel()
	var b burst
	total := uint64(0)
	for i, c := range []struct {
		reason string
		more   uint64
		over   bool
	}{
		{"nothing has happened yet", 1 << 20, false},
		{"work has begun", 1 << 30, false},
		{"and goes on", 200 << 20, false},
		{"it is over: what it took is given back", 1 << 20, true},
		{"which is done once", 1 << 20, false},
		{"what happens at rest is no work", 30 << 20, false},
		{"until there is work again", 64 << 20, false},
		{"that ends as well", 0, true},
	} {
		total += c.more
		require.Equal(t, c.over, b.over(total), "%d: %s", i, c.reason)
	}
}

// The setting is the process's: not beside others.
func TestTheEnvironmentSaysWhenGarbageIsCollected(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, c := range []struct {
		reason, environment string
		percent             int
	}{
		{"whoever sets GOGC has chosen between memory and CPU", "100", 100},
		{"by default a worker keeps less after a burst", "", collectAt},
	} {
		t.Setenv("GOGC", c.environment)
		boundGarbage()
		require.Equal(t, c.percent, debug.SetGCPercent(100), c.reason)
	}
}
