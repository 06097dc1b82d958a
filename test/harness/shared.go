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

// shared is what the tests of a package share.
var shared struct {
	sync.Mutex
	engine *Engine
	guard  *Guard
	// ends are the package-lifetime TBs of the tests that created something shared; main is true once Main has run.
	ends []*packageTB
	main bool
}

// share creates something that belongs to the package from then on. The caller holds the lock of shared.
func share[V any](t testing.TB, make func(t testing.TB) V) V {
	t.Helper()
	require.True(t, shared.main, "the TestMain of this package must call harness.Main, which ends what its tests share")
	l := &packageTB{TB: t}
	shared.ends = append(shared.ends, l)
	made := make(l)
	l.made.Store(true)
	return made
}

// Shared returns the engine that the tests of a package share, with a separate namespace for the test's workloads.
// Twenty engines would each watch every pod of the cluster. A test may use it if it neither breaks the engine nor needs
// its own settings, and if the names of its services, plans and servings are unique in the package. The package's
// TestMain calls Main.
func Shared(t testing.TB) *Engine {
	t.Helper()
	SharedStack(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.engine == nil {
		shared.engine = share(t, func(t testing.TB) *Engine { return Start(t, Options{}) })
	}
	e := shared.engine.ForTest(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the shared engine's output:\n%s", tail(e.Processes[0].Output()))
		}
	})
	return e
}

// SharedGuard returns the guard that the tests of a package share. It lets only EngineUser pass. No namespace is under
// it yet. A guard is two dozen policies, which the API server compiles and evaluates for each write of every client.
// The package's TestMain calls Main.
func SharedGuard(t testing.TB) *Guard {
	t.Helper()
	stack := SharedStack(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.guard == nil {
		stack.InstallRollouts(t) // a guard is installed without policies for kinds that do not exist
		shared.guard = share(t, stack.InstallGuard)
	}
	return shared.guard
}

var installingRollouts sync.Mutex

// InstallRollouts installs Slipway's custom resource definitions, Rollout among them.
func (s Stack) InstallRollouts(t testing.TB) {
	t.Helper()
	installingRollouts.Lock()
	defer installingRollouts.Unlock()
	home, err := store.New(s.REST, "default", "default")
	require.NoError(t, err)
	require.NoError(t, home.EnsureCRDs(context.Background()))
}

// Main runs the tests of a package, calls ends, and then ends what the tests shared.
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

// packageTB is the TB of something shared. Its cleanups run at the end of the package. Once made is true, failures
// count against the package.
type packageTB struct {
	testing.TB
	made, failed atomic.Bool
	mu           sync.Mutex
	ends         []func()
}

// Cleanup registers a function for the end of the package.
func (l *packageTB) Cleanup(end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, end)
}

// Failed returns false: each test reports its own failure.
func (l *packageTB) Failed() bool { return false }

// Errorf fails the test; once the shared thing is made, it fails the package.
func (l *packageTB) Errorf(format string, args ...any) {
	if !l.made.Load() {
		l.TB.Errorf(format, args...)
		return
	}
	l.failed.Store(true)
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// FailNow ends the test; once the shared thing is made, it ends the current goroutine.
func (l *packageTB) FailNow() {
	if !l.made.Load() {
		l.TB.FailNow()
	}
	l.failed.Store(true)
	runtime.Goexit()
}

// Logf writes to stderr at once, even after the test has ended.
func (l *packageTB) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// end runs the cleanups, newest first, and reports whether all succeeded.
func (l *packageTB) end() bool {
	l.made.Store(true)
	for _, end := range slices.Backward(l.ends) {
		var ending sync.WaitGroup
		ending.Go(end) // FailNow ends only this goroutine
		ending.Wait()
	}
	return !l.failed.Load()
}
