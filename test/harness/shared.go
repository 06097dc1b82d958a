package harness

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/store"
)

// shared is what the tests of a package have in common.
var shared struct {
	sync.Mutex
	engine *Engine
	guard  *Guard
	// ends are the tests that it was made by, main says that they are ended.
	ends []*lasting
	main bool
}

// share makes something that belongs to the package from then on. shared is locked.
func share[V any](t testing.TB, make func(t testing.TB) V) V {
	t.Helper()
	require.True(t, shared.main, "the TestMain of this package has to call harness.Main, which ends what its tests share")
	l := &lasting{TB: t}
	shared.ends = append(shared.ends, l)
	made := make(l)
	l.made.Store(true)
	return made
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
		shared.engine = share(t, func(t testing.TB) *Engine { return Start(t, Options{}) })
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
		shared.guard = share(t, stack.InstallGuard)
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
	shared.main = true
	code := m.Run()
	for _, end := range ends {
		end()
	}
	for _, l := range slices.Backward(shared.ends) {
		if !l.end() && code == 0 {
			code = 1
		}
	}
	os.Exit(code)
}

// lasting is the test that something shared belongs to. Once that is made it lasts until the end of the package.
type lasting struct {
	testing.TB
	made, failed atomic.Bool
	mu           sync.Mutex
	ends         []func()
}

// Cleanup keeps what is to be done at the end of the package.
func (l *lasting) Cleanup(end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, end)
}

// Failed says no: each test says for itself.
func (l *lasting) Failed() bool { return false }

// Errorf fails the test, or later the package.
func (l *lasting) Errorf(format string, args ...any) {
	if !l.made.Load() {
		l.TB.Errorf(format, args...)
		return
	}
	l.failed.Store(true)
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// FailNow ends the test, or later what is being ended.
func (l *lasting) FailNow() {
	if !l.made.Load() {
		l.TB.FailNow()
	}
	l.failed.Store(true)
	runtime.Goexit()
}

// Logf says it at once, also when the test is over.
func (l *lasting) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// end ends it, newest first, and says whether all went well.
func (l *lasting) end() bool {
	l.made.Store(true)
	for _, end := range slices.Backward(l.ends) {
		var ending sync.WaitGroup
		ending.Go(end) // one that fails ends alone
		ending.Wait()
	}
	return !l.failed.Load()
}
