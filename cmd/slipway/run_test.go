package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBurst_EndsOnce(t *testing.T) {
	t.Parallel()
	var b burst
	total := uint64(0)
	for i, c := range []struct {
		reason string
		more   uint64
		over   bool
	}{
		{"no work yet", 1 << 20, false},
		{"work starts", 1 << 30, false},
		{"work continues", 200 << 20, false},
		{"the burst has ended", 1 << 20, true},
		{"the end is reported once", 1 << 20, false},
		{"idle allocations are not work", 30 << 20, false},
		{"work starts again", 64 << 20, false},
		{"the second burst has ended", 0, true},
	} {
		total += c.more
		require.Equal(t, c.over, b.ended(total), "%d: %s", i, c.reason)
	}
}

// The GC percent is a property of the process, so the test does not run in parallel.
func TestGCPercent_RespectsGOGC(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, c := range []struct {
		reason, environment string
		percent             int
	}{
		{"GOGC takes precedence", "100", 100},
		{"the default is lower", "", gcPercent},
	} {
		t.Setenv("GOGC", c.environment)
		lowerGCPercent()
		require.Equal(t, c.percent, debug.SetGCPercent(100), c.reason)
	}
}

// The memory limit is a property of the process, so the test does not run in parallel.
func TestMemoryLimit_FollowsTheContainer(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for name, c := range map[string]struct {
		reason, file, environment string
		limit                     int64
	}{
		"Limit":       {"a container's limit leaves room for what is not the runtime's", "536870912\n", "", 456340265},
		"None":        {"a container without a limit", "max\n", "", before},
		"Environment": {"GOMEMLIMIT takes precedence", "536870912\n", "400MiB", before},
		"NoFile":      {"no container", "", "", before},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(before)
			t.Setenv("GOMEMLIMIT", c.environment)
			path := filepath.Join(t.TempDir(), "memory.max")
			if c.file != "" {
				require.NoError(t, os.WriteFile(path, []byte(c.file), 0o600))
			}
			limitMemory(path)
			require.Equal(t, c.limit, debug.SetMemoryLimit(-1), c.reason)
		})
	}
}
