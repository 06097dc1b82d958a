package harness

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// NewOwnTemporal returns the shared stack with a separate Temporal server that keeps the builds of workers.
func NewOwnTemporal(t testing.TB) *Stack {
	t.Helper()
	stack := SharedStack(t)
	newTemporalServer(t, &stack).restart()
	return &stack
}

// temporalServer is a Temporal server of one test.
type temporalServer struct {
	t       testing.TB
	path    string
	dir     string
	ports   [2]string
	process *Process
}

// newTemporalServer prepares a server, without starting it, and makes the stack use it.
func newTemporalServer(t testing.TB, stack *Stack) *temporalServer {
	t.Helper()
	s := &temporalServer{t: t, path: stack.Binary("temporal-dev"), dir: t.TempDir()}
	for i := range s.ports {
		_, s.ports[i], _ = strings.Cut(freeAddress(t), ":")
	}
	stack.TemporalAddress, stack.TemporalUI, stack.KeepsBuilds = "127.0.0.1:"+s.ports[0],
		"http://127.0.0.1:"+s.ports[1], true
	return s
}

// restart starts the server, or restarts it with its data.
func (s *temporalServer) restart(flags ...string) {
	s.t.Helper()
	if s.process != nil {
		s.process.Kill()
	}
	args := append([]string{"--port", s.ports[0], "--ui-port", s.ports[1], "--db-filename",
		filepath.Join(s.dir, "temporal.db"), "--namespace-workers"}, flags...)
	s.process = Run(s.t, s.path, args, nil)
	require.Eventually(s.t, func() bool {
		return strings.Contains(s.process.Output(), "Temporal serves on")
	}, Patience, Tick, "the test's Temporal does not come up")
}
