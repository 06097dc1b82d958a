package harness

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/release/kruise"
)

// Engine is one Slipway with a Temporal namespace and an engine namespace of its own, and a namespace for what it releases.
type Engine struct {
	Stack
	// URL is the address of the HTTP API, and Token what it asks for, if it asks for one.
	URL, Token string
	// KusciaURL and KusciaGRPC are the addresses of Kuscia's API over HTTP and gRPC. It is guarded by nothing, unless the options say otherwise.
	KusciaURL, KusciaGRPC string
	// Apps is the namespace of the workloads, Home that of the engine and of its servings.
	Apps, Home string
	// TemporalNamespace holds the engine's workflows, and Workflows is a client of it.
	TemporalNamespace string
	Workflows         client.Client
	// Processes are the engine's: one of `slipway dev`, unless the options say otherwise.
	Processes []*Process

	listen, kusciaListen string
	// kubeconfig is that of the processes.
	kubeconfig string
	t          testing.TB
}

// For is the same engine for another test, or a part of one, with a namespace of its own for the workloads.
func (e *Engine) For(t testing.TB) *Engine {
	t.Helper()
	other := *e
	other.t, other.Apps = t, e.Namespace(t, "apps")
	LabelNamespace(t, e.Kube, other.Apps, kruise.KeyEngine, e.Home)
	return &other
}

// In is the same engine and the same namespace for a part of the test.
func (e *Engine) In(t testing.TB) *Engine {
	other := *e
	other.t = t
	return &other
}

// Options say how an engine is run.
type Options struct {
	// Binary is the program's name, "slipway" by default.
	Binary string
	// Args and Env are added to those of every process, WorkerEnv to those of workers that run apart.
	Args, Env, WorkerEnv []string
	// Apart runs server and worker as two processes; Processes are then [server, worker].
	Apart bool
	// Stack is the stack to run on; the shared one by default.
	Stack *Stack
	// Kubeconfig makes the kubeconfig of the processes once the engine's namespaces are there; the stack's own by default.
	Kubeconfig func(e *Engine) (path string)
}

// Nobody is an engine of which no process runs, with a namespace for workloads.
func Nobody(t testing.TB) *Engine {
	t.Helper()
	stack := SharedStack(t)
	return &Engine{Stack: stack, t: t, Apps: stack.Namespace(t, "apps")}
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
	e := &Engine{Stack: stack, t: t, listen: freeAddress(t), kusciaListen: freeAddress(t), KusciaGRPC: freeAddress(t)}
	e.Apps, e.Home = stack.Namespace(t, "apps"), stack.Namespace(t, "home")
	e.TemporalNamespace = stack.TemporalNamespace(t)
	e.Workflows = stack.Temporal(t, e.TemporalNamespace)
	if stack.Prepare != nil {
		stack.Prepare(t, e.TemporalNamespace)
	}
	LabelNamespace(t, e.Kube, e.Apps, kruise.KeyEngine, e.Home) // the Rollouts there are this engine's
	e.URL, e.KusciaURL, e.kubeconfig = "http://"+e.listen, "http://"+e.kusciaListen, stack.Kubeconfig
	if o.Kubeconfig != nil {
		e.kubeconfig = o.Kubeconfig(e)
	}
	if o.Apart {
		e.Processes = []*Process{e.Server(o), e.Worker(o)}
	} else {
		e.Processes = []*Process{e.Dev(o)}
	}
	e.WaitReady()
	return e
}

// Beside is the same engine at another address, where another server process of it serves.
func (e *Engine) Beside(o Options) (other *Engine, server *Process) {
	e.t.Helper()
	copied := *e
	copied.listen, copied.kusciaListen, copied.KusciaGRPC = freeAddress(e.t), freeAddress(e.t), freeAddress(e.t)
	copied.URL, copied.KusciaURL = "http://"+copied.listen, "http://"+copied.kusciaListen
	return &copied, copied.Server(o)
}

// Dev starts another process of server and worker in one.
func (e *Engine) Dev(o Options) *Process {
	return e.process(o, e.serving("dev")...)
}

// Server starts another server process.
func (e *Engine) Server(o Options) *Process {
	return e.process(o, e.serving("server")...)
}

// serving are the arguments of a command that serves the engine's addresses.
func (e *Engine) serving(command string) []string {
	args := []string{command, "--listen", e.listen, "--kuscia-listen", e.kusciaListen, "--kuscia-grpc-listen", e.KusciaGRPC,
		"--temporal-ui", e.TemporalUI, "--install-crds=true"}
	if command == "dev" { // the guard of one engine would hold for the workloads of all, and its webhooks would convert for all
		args = append(args, "--install-guard=false", "--webhook-listen=")
	}
	return args
}

// Worker starts another worker process.
func (e *Engine) Worker(o Options) *Process {
	o.Env = slices.Concat(o.Env, o.WorkerEnv)
	return e.process(o, "worker")
}

// PartyWorker starts a worker that serves one party only, in the engine's namespace of the workloads, with a kubeconfig of its own.
func (e *Engine) PartyWorker(party, kubeconfig string, args ...string) *Process {
	return e.PartyWorkerIn(party, e.Apps, kubeconfig, args...)
}

// PartyWorkerIn is PartyWorker in another namespace.
func (e *Engine) PartyWorkerIn(party, namespace, kubeconfig string, args ...string) *Process {
	return Run(e.t, e.Binary("slipway"), append([]string{"worker", "--party", party, "--watch-namespaces", namespace, "--kubeconfig", kubeconfig,
		"--temporal-address", e.TemporalAddress, "--temporal-namespace", e.TemporalNamespace}, args...), e.versioning())
}

// versioning has workers tell Temporal their build where it keeps builds.
func (s Stack) versioning() []string {
	if s.KeepsBuilds {
		return nil
	}
	return []string{"SLIPWAY_WORKER_VERSIONING=false"}
}

func (e *Engine) process(o Options, args ...string) *Process {
	binary := o.Binary
	if binary == "" {
		binary = "slipway"
	}
	args = append(args, "--kubeconfig", e.kubeconfig, "--temporal-address", e.TemporalAddress, "--temporal-namespace", e.TemporalNamespace, "--namespace", e.Home, "--serving-namespace", e.Home)
	return Run(e.t, e.Binary(binary), append(args, o.Args...), append(e.versioning(), o.Env...))
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
