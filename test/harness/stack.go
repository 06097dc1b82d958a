// Package harness runs Slipway as users do: with its own binary, a real Temporal server and a real Kubernetes API, one
// engine for each test.
package harness

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.io/slipway/kube"
)

// Patience is how long a test waits for a state before it gives up.
const Patience = 2 * time.Minute

// Tick is the interval between checks of a state. A shorter one would keep both cores busy with the requests of a dozen
// tests.
const Tick = 150 * time.Millisecond

// Stack holds the addresses and clients of the Temporal and Kubernetes that a test's engine uses.
type Stack struct {
	Kubeconfig      string
	TemporalAddress string
	// TemporalUI is the address of Temporal's Web UI itself; that of an Engine is where the engine publishes it.
	TemporalUI string
	// TemporalClientOptions adds the credentials that the tests' own clients need for Temporal; nil: none.
	TemporalClientOptions func(*client.Options)
	// Prepare adds to a Temporal namespace what engines have no permission to add; nil: nothing.
	Prepare func(t testing.TB, namespace string)
	// KeepsBuilds is true if Temporal keeps the builds of workers in all namespaces. The shared one does not: with
	// thousands of namespaces that costs two cores.
	KeepsBuilds bool
	// OpenKruise is true if OpenKruise's own manager runs the stack's CloneSets, Advanced StatefulSets and Advanced
	// DaemonSets; else a test starts the replacement in test/kruise.
	OpenKruise bool
	// Bin is the folder of the binaries.
	Bin  string
	Kube kubernetes.Interface
	REST *rest.Config
}

// SharedStack returns the local stack that `make test` starts. Without it the test is skipped.
func SharedStack(t testing.TB) Stack {
	t.Helper()
	if os.Getenv("SLIPWAY_TEST_STACK") == "" {
		t.Skip("needs the local stack: run it by `make test`")
	}
	return NewStack(t, os.Getenv("SLIPWAY_TEST_KUBECONFIG"), os.Getenv("SLIPWAY_TEST_TEMPORAL_ADDRESS"),
		os.Getenv("SLIPWAY_TEST_TEMPORAL_UI"))
}

// NewStack returns a stack at these addresses.
func NewStack(t testing.TB, kubeconfig, temporal, ui string) Stack {
	t.Helper()
	s := Stack{Kubeconfig: kubeconfig, TemporalAddress: temporal, TemporalUI: ui, Bin: os.Getenv("SLIPWAY_TEST_BIN")}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	s.REST = kube.Configure(config, kube.Options{QPS: 5000, Burst: 10000})
	s.Kube, err = kubernetes.NewForConfig(kube.Protobuf(s.REST))
	require.NoError(t, err)
	return s
}

// RandomName returns a name that no other test has.
func RandomName(prefix string) string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return prefix + "-" + hex.EncodeToString(b[:])
}

// Namespace creates a Kubernetes namespace for one test.
func (s Stack) Namespace(t testing.TB, prefix string) string {
	t.Helper()
	return NewNamespace(t, s.Kube, prefix)
}

// TemporalNamespace registers a Temporal namespace for one test and waits until it is usable.
func (s Stack) TemporalNamespace(t testing.TB) string {
	t.Helper()
	name := RandomName("test")
	c, err := client.NewNamespaceClient(s.temporalOptions(""))
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool {
		err := c.Register(context.Background(), &workflowservice.RegisterNamespaceRequest{
			Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour)})
		var exists *serviceerror.NamespaceAlreadyExists
		return err == nil || errors.As(err, &exists)
	}, Patience, Tick, "Temporal namespace %s cannot be registered", name)
	w := s.Temporal(t, name)
	require.Eventually(t, func() bool {
		_, err := w.DescribeWorkflowExecution(context.Background(), "none", "")
		var missing *serviceerror.NotFound
		return errors.As(err, &missing)
	}, Patience, Tick, "Temporal namespace %s is not usable", name)
	t.Cleanup(func() { recordHistories(t, w, name) })
	return name
}

// Temporal returns a client of one Temporal namespace.
func (s Stack) Temporal(t testing.TB, namespace string) client.Client {
	t.Helper()
	c, err := client.NewLazyClient(s.temporalOptions(namespace))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func (s Stack) temporalOptions(namespace string) client.Options {
	options := client.Options{HostPort: s.TemporalAddress, Namespace: namespace, Logger: quiet()}
	if s.TemporalClientOptions != nil {
		s.TemporalClientOptions(&options)
	}
	return options
}

func quiet() log.Logger { return log.NewStructuredLogger(discard) }

// Binary returns the path of a built program.
func (s Stack) Binary(name string) string { return filepath.Join(s.Bin, name) }
