package harness

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFreePort takes many ports while no process listens on any of them, as an engine does with its addresses before it
// starts.
func TestFreePort(t *testing.T) {
	seen := map[string]bool{}
	for range 500 {
		port := FreePort(t)
		require.False(t, seen[port], "a port is given out twice: %s", port)
		seen[port] = true
	}
}
