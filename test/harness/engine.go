package harness

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/release/kruise"
)

// Engine is a Slipway installation with its own Temporal namespace, its own engine namespace, and a namespace for the
// workloads it releases.
type Engine struct {
	Stack
	// URL is the address of the HTTP API; Token is its bearer token, "" if it requires none.
	URL, Token string
	// KusciaURL and KusciaGRPC are the addresses of Kuscia's API over HTTP and gRPC. Without options it requires no
	// authentication.
	KusciaURL, KusciaGRPC string
	// Apps is the namespace of the workloads; Home is the namespace of the engine and its servings.
	Apps, Home string
	// TemporalNamespace holds the engine's workflows; Workflows is a client of it.
	TemporalNamespace string
	Workflows         client.Client
	// Processes are the engine's processes: one `slipway dev`, unless the options differ.
	Processes []*Process

	listen, kusciaListen string
	// kubeconfig is the kubeconfig of the processes.
	kubeconfig string
	t          testing.TB
}

// ForTest returns the same engine for another test or subtest, with a separate namespace for the workloads.
func (e *Engine) ForTest(t testing.TB) *Engine {
	t.Helper()
	other := *e
	other.t, other.Apps = t, e.Namespace(t, "apps")
	LabelNamespace(t, e.Kube, other.Apps, kruise.KeyEngine, e.Home)
	return &other
}

// WithT returns the same engine and namespace for a subtest.
func (e *Engine) WithT(t testing.TB) *Engine {
	other := *e
	other.t = t
	return &other
}

// Options define how an engine is run.
type Options struct {
	// Binary is the program's name, "slipway" by default.
	Binary string
	// Args and Env are added to those of every process, WorkerEnv to those of separate workers.
	Args, Env, WorkerEnv []string
	// SeparateWorker runs server and worker as two processes; Processes are then [server, worker].
	SeparateWorker bool
	// Stack is the stack to run on; the shared one by default.
	Stack *Stack
	// Kubeconfig makes the kubeconfig of the processes once the engine's namespaces exist; nil: the stack's own.
	Kubeconfig func(e *Engine) (path string)
}

// NewWithoutProcesses returns an engine without processes, with a namespace for workloads.
func NewWithoutProcesses(t testing.TB) *Engine {
	t.Helper()
	stack := SharedStack(t)
	return &Engine{Stack: stack, t: t, Apps: stack.Namespace(t, "apps")}
}

// Start starts an engine and waits until it is ready.
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
	LabelNamespace(t, e.Kube, e.Apps, kruise.KeyEngine, e.Home) // this engine serves the Rollouts in that namespace
	e.URL, e.KusciaURL, e.kubeconfig = "http://"+e.listen, "http://"+e.kusciaListen, stack.Kubeconfig
	if o.Kubeconfig != nil {
		e.kubeconfig = o.Kubeconfig(e)
	}
	if o.SeparateWorker {
		e.Processes = []*Process{e.Server(o), e.Worker(o)}
	} else {
		e.Processes = []*Process{e.Dev(o)}
	}
	e.WaitReady()
	return e
}

// SecondServer starts another server process of the engine at another address. The returned engine uses that address.
func (e *Engine) SecondServer(o Options) (other *Engine, server *Process) {
	e.t.Helper()
	copied := *e
	copied.listen, copied.kusciaListen, copied.KusciaGRPC = freeAddress(e.t), freeAddress(e.t), freeAddress(e.t)
	copied.URL, copied.KusciaURL = "http://"+copied.listen, "http://"+copied.kusciaListen
	return &copied, copied.Server(o)
}

// Dev starts another process that is both server and worker.
func (e *Engine) Dev(o Options) *Process {
	return e.process(o, e.serverArgs("dev")...)
}

// Server starts another server process.
func (e *Engine) Server(o Options) *Process {
	return e.process(o, e.serverArgs("server")...)
}

// serverArgs returns the arguments of a command that serves the engine's addresses.
func (e *Engine) serverArgs(command string) []string {
	args := []string{command, "--listen", e.listen, "--kuscia-listen", e.kusciaListen, "--kuscia-grpc-listen",
		e.KusciaGRPC,
		"--temporal-ui", e.TemporalUI, "--install-crds=true"}
	if command == "dev" { // one engine's guard and conversion webhooks would affect the workloads of all
		args = append(args, "--install-guard=false", "--webhook-listen=")
	}
	return args
}

// Worker starts another worker process.
func (e *Engine) Worker(o Options) *Process {
	o.Env = slices.Concat(o.Env, o.WorkerEnv)
	return e.process(o, "worker")
}

// PartyWorker starts a worker that serves only one party, in the engine's namespace of the workloads, with its own
// kubeconfig.
func (e *Engine) PartyWorker(party, kubeconfig string, args ...string) *Process {
	return e.PartyWorkerIn(party, e.Apps, kubeconfig, args...)
}

// PartyWorkerIn is PartyWorker in another namespace.
func (e *Engine) PartyWorkerIn(party, namespace, kubeconfig string, args ...string) *Process {
	return Run(e.t, e.Binary("slipway"), append([]string{"worker", "--party", party, "--watch-namespaces", namespace,
		"--kubeconfig", kubeconfig,
		"--temporal-address", e.TemporalAddress, "--temporal-namespace", e.TemporalNamespace}, args...),
		e.versioningEnv())
}

// versioningEnv turns worker versioning off unless Temporal keeps builds.
func (s Stack) versioningEnv() []string {
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
	args = append(args, "--kubeconfig", e.kubeconfig, "--temporal-address", e.TemporalAddress, "--temporal-namespace",
		e.TemporalNamespace, "--namespace", e.Home, "--serving-namespace", e.Home)
	return Run(e.t, e.Binary(binary), append(args, o.Args...), append(e.versioningEnv(), o.Env...))
}

// WaitReady returns when the server reports ready, which includes its dependencies and workers.
func (e *Engine) WaitReady() {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		response, err := http.Get(e.URL + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, Patience, Tick, "the engine did not become ready")
}
