package harness

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is the engine that the tests of a package have in common.
var shared struct {
	sync.Mutex
	engine *Engine
	ends   *lasting
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
		shared.ends = &lasting{TB: t}
		shared.engine = Start(shared.ends, Options{})
	}
	e := shared.engine.For(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of what the shared engine has written:\n%s", tail(e.Processes[0].Output()))
		}
	})
	return e
}

// Main runs the tests of a package and ends what they had in common.
func Main(m *testing.M) {
	code := m.Run()
	if shared.ends != nil {
		shared.ends.end()
	}
	os.Exit(code)
}

// lasting is the test that a shared engine belongs to: it ends with the package.
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

func (l *lasting) end() {
	for i := len(l.ends) - 1; i >= 0; i-- {
		l.ends[i]()
	}
}
