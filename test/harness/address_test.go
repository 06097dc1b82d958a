package harness

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFreePort takes many ports while nothing listens on any of them, as an engine does with its addresses before it starts.
func TestFreePort(t *testing.T) {
	seen := map[string]bool{}
	for range 500 {
		port := FreePort(t)
		require.False(t, seen[port], "no port is given to two: %s", port)
		seen[port] = true
	}
}
