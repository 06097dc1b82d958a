package harness

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Test ports lie below Linux's ephemeral ports (32768 and up), so a process that is killed and started again finds its
// port free. They also lie below the ports of private stacks (deploy/dev/lib/settings.sh). Temporal stores its ports in
// PostgreSQL as 15-bit numbers.
const firstPort, lastPort = 10000, 20200

// FreePort returns a port of 127.0.0.1 that belongs to this test until it ends, even while no process listens on it,
// and across test packages. It is reserved by a socket in Linux's abstract namespace, which disappears with the
// process.
func FreePort(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(firstPort + rand.IntN(lastPort-firstPort))
		claim, err := net.Listen("unix", "@slipway-test-port-"+port)
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			require.NoError(t, l.Close())
			t.Cleanup(func() { _ = claim.Close() })
			return port
		}
		_ = claim.Close()
	}
	require.Fail(t, "there is no free port")
	return ""
}

func freeAddress(t testing.TB) string { return net.JoinHostPort("127.0.0.1", FreePort(t)) }
