package harness

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
)

// Engine is one Slipway with a Temporal namespace and an engine namespace of its own, and a namespace for what it releases.
type Engine struct {
	Stack
	// URL is the address of the HTTP API.
	URL string
	// Apps is the namespace of the workloads, Home that of the engine.
	Apps, Home string
	// TemporalNamespace holds the engine's workflows, and Workflows is a client of it.
	TemporalNamespace string
	Workflows         client.Client
	// Processes are the engine's: one of `slipway dev`, unless the options say otherwise.
	Processes []*Process

	listen string
	t      testing.TB
}

// Options say how an engine is run.
type Options struct {
	// Binary is the program's name, "slipway" by default.
	Binary string
	// Args and Env are added to those of every process.
	Args, Env []string
	// Apart runs server and worker as two processes; Processes are then [server, worker].
	Apart bool
	// Stack is the stack to run on; the shared one by default.
	Stack *Stack
}

// Start runs an engine until it is ready.
func Start(t testing.TB, o Options) *Engine {
	t.Helper()
	var stack Stack
	if o.Stack != nil {
		stack = *o.Stack
	} else {
		stack = SharedStack(t)
	}
	e := &Engine{Stack: stack, t: t, listen: freeAddress(t)}
	e.Apps, e.Home = stack.Namespace(t, "apps"), stack.Namespace(t, "home")
	e.TemporalNamespace = stack.TemporalNamespace(t)
	e.Workflows = stack.Temporal(t, e.TemporalNamespace)
	e.URL = "http://" + e.listen
	if o.Apart {
		e.Processes = []*Process{e.Server(o), e.Worker(o)}
	} else {
		e.Processes = []*Process{e.Dev(o)}
	}
	e.WaitReady()
	return e
}

// Dev starts another process of server and worker in one.
func (e *Engine) Dev(o Options) *Process {
	return e.process(o, "dev", "--listen", e.listen, "--temporal-ui", e.TemporalUI, "--install-crds=true")
}

// Server starts another server process.
func (e *Engine) Server(o Options) *Process {
	return e.process(o, "server", "--listen", e.listen, "--temporal-ui", e.TemporalUI, "--install-crds=true")
}

// Worker starts another worker process.
func (e *Engine) Worker(o Options) *Process { return e.process(o, "worker") }

func (e *Engine) process(o Options, args ...string) *Process {
	binary := o.Binary
	if binary == "" {
		binary = "slipway"
	}
	args = append(args, "--kubeconfig", e.Kubeconfig, "--temporal-address", e.TemporalAddress, "--temporal-namespace", e.TemporalNamespace, "--namespace", e.Home)
	return Run(e.t, e.Binary(binary), append(args, o.Args...), o.Env)
}

// WaitReady returns when every dependency of the server, its workers included, is there.
func (e *Engine) WaitReady() {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		response, err := http.Get(e.URL + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, Patience, Tick, "the engine does not get ready")
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port)
}
