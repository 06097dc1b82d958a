package harness

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/store"
)

// shared is what the tests of a package have in common.
var shared struct {
	sync.Mutex
	engine *Engine
	guard  *Guard
	ends   *lasting
}

// sharedBy is the test that what is shared belongs to. shared is locked.
func sharedBy(t testing.TB) testing.TB {
	if shared.ends == nil {
		shared.ends = &lasting{TB: t}
	}
	return shared.ends
}

// Shared is the engine that the tests of a package have in common, with a namespace of the test's own for the workloads: twenty engines would each
// follow every pod of the cluster. It is for a test that neither breaks it nor needs settings of its own, and whose services, plans and servings have
// names that no other test of the package has. The package's TestMain calls Main.
func Shared(t testing.TB) *Engine {
	t.Helper()
	SharedStack(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.engine == nil {
		shared.engine = Start(sharedBy(t), Options{})
	}
	e := shared.engine.For(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of what the shared engine has written:\n%s", tail(e.Processes[0].Output()))
		}
	})
	return e
}

// SharedGuard is a guard that the tests of a package have in common, which lets EngineUser pass, and no other. It holds for no namespace yet. A guard is
// two dozen policies, which the API server compiles, and asks about each write of everybody. The package's TestMain calls Main.
func SharedGuard(t testing.TB) *Guard {
	t.Helper()
	stack := SharedStack(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.guard == nil {
		stack.InstallRollouts(t) // without them a guard has no policy for them
		shared.guard = stack.InstallGuard(sharedBy(t))
	}
	return shared.guard
}

var installingRollouts sync.Mutex

// InstallRollouts sees to it that the API server knows Rollouts.
func (s Stack) InstallRollouts(t testing.TB) {
	t.Helper()
	installingRollouts.Lock()
	defer installingRollouts.Unlock()
	home, err := store.New(s.REST, "default", "default")
	require.NoError(t, err)
	require.NoError(t, home.EnsureCRDs(context.Background()))
}

// Main runs the tests of a package and ends what they had in common, and what else is to be ended.
func Main(m *testing.M, ends ...func()) {
	code := m.Run()
	for _, end := range ends {
		end()
	}
	if shared.ends != nil {
		shared.ends.end()
	}
	os.Exit(code)
}

// lasting is the test that what is shared belongs to: it ends with the package.
type lasting struct {
	testing.TB
	mu   sync.Mutex
	ends []func()
}

// Cleanup keeps what is to be done at the end of the package.
func (l *lasting) Cleanup(end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, end)
}

// Failed says no: each test says for itself.
func (l *lasting) Failed() bool { return false }

// Errorf says what goes wrong when the test that came first is over.
func (l *lasting) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Logf says it at once, also when that test is over.
func (l *lasting) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (l *lasting) end() {
	for i := len(l.ends) - 1; i >= 0; i-- {
		l.ends[i]()
	}
}
