package harness

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ports that tests listen on lie below those that Linux gives to outgoing connections (32768 and up): a process that is killed and started
// again finds its port free. They lie below those that a private stack chooses from, too (deploy/dev/lib/settings.sh). And
// Temporal keeps its ports in PostgreSQL as numbers of 15 bits.
const firstPort, lastPort = 10000, 20200

// FreePort is a port of 127.0.0.1 that is this test's own until it ends, also while nothing listens on it, and for the tests of other packages. It is
// claimed by a socket in Linux's abstract namespace, which goes with the process.
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
