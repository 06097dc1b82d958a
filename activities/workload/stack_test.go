package workload_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/heartbeat"
	workloads "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

const (
	patience = 60 * time.Second
	// tick is the polling interval for the API server: a shorter one would keep both cores busy with polling.
	tick = 100 * time.Millisecond
)

// bench is one test's namespace, the activities under test, and their requests to the API server.
type bench struct {
	t         *testing.T
	kube      kubernetes.Interface
	config    *rest.Config
	namespace string
	acts      *workloads.Activities
	traffic   *traffic
	// recorder is nil where a real Temporal server receives the heartbeats.
	recorder heartbeat.Recorder
	// process are the options of the worker process in which the activities run.
	process worker.Options
}

// traffic counts the requests of the activities, and can intercept them.
type traffic struct {
	next http.RoundTripper

	mu     sync.Mutex
	calls  []string
	writes int
	fault  func(*http.Request) (*http.Response, error)
}

func (c *traffic) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	call := r.Method + " " + r.URL.Path + "?" + r.URL.RawQuery
	c.calls = append(c.calls, call)
	fault := c.fault
	c.mu.Unlock()
	if fault != nil {
		if response, err := fault(r); response != nil || err != nil {
			return response, err
		}
	}
	response, err := c.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPatch && response.StatusCode == http.StatusOK &&
		!strings.Contains(r.URL.RawQuery, "dryRun") {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writes++
	}
	return response, err
}

// written is the number of patches that the server accepted, without those that conflicted and were decided again.
func (c *traffic) written() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// count is the number of requests of a method whose path contains the text, without watches.
func (c *traffic) count(method, text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, call := range c.calls {
		if strings.HasPrefix(call, method+" ") && strings.Contains(call, text) &&
			!strings.Contains(call, "watch=true") {
			n++
		}
	}
	return n
}

// watches is the number of started watches, and watchesOf the number of those with this path.
func (c *traffic) watches() int { return c.watchesOf("/") }

func (c *traffic) watchesOf(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, call := range c.calls {
		if strings.HasPrefix(call, "GET "+path+"?") && strings.Contains(call, "watch=true") || path == "/" &&
			strings.Contains(call, "watch=true") {
			n++
		}
	}
	return n
}

func (c *traffic) set(fault func(*http.Request) (*http.Response, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
}

// newBench makes a namespace on the local stack and activities for it. Without the stack the test is skipped.
func newBench(t *testing.T) *bench {
	t.Helper()
	stack := harness.SharedStack(t)
	t.Parallel()
	b := &bench{t: t, kube: stack.Kube, config: stack.REST, namespace: stack.Namespace(t, "workload"),
		recorder: recorder{}}
	b.use(b.config, workloads.Options{})
	return b
}

// use replaces the activities by new ones, for an account and with options.
func (b *bench) use(config *rest.Config, options workloads.Options) {
	b.t.Helper()
	b.process = worker.Options{}
	counted := rest.CopyConfig(config)
	b.traffic = &traffic{}
	counted.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		b.traffic.next = next
		return b.traffic
	}
	// outside of the injected faults, so that it classifies them as the cluster's
	counted = kube.Configure(counted, kube.Options{QPS: 500, Burst: 1000})
	if options.Recorder == nil {
		options.Recorder = b.recorder
	}
	client, err := kubernetes.NewForConfig(counted)
	require.NoError(b.t, err)
	objects, err := dynamic.NewForConfig(counted)
	require.NoError(b.t, err)
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(b.t.Output(), nil))
	}
	b.acts = workloads.New(client, objects, options)
	b.t.Cleanup(b.acts.Stop)
}

// recorder replaces the Temporal server where there is none; the SDK's own heartbeats reach the test's listener.
type recorder struct{ err error }

func (r recorder) RecordActivityHeartbeat(context.Context, []byte, ...any) error { return r.err }

// request is an operation of this test's release on a workload.
func (b *bench) request(name observer.Name, op plan.Operation, method plan.Method) operation.Request {
	return operation.Request{
		Claim: workload.Holder{WorkflowID: "task/t1/1-" + name.Name, RunID: "run-1"}.String(), Marker: "t1/1",
		Operation: op, Method: method,
		DeadlineSeconds: 60, UnreachableBudgetSeconds: 30,
		Workload: catalog.Workload{Namespace: b.namespace,
			WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: name.Kind, Name: name.Name}},
	}
}

// driver runs one activity attempt after attempt and passes the heartbeat details on, as Temporal does.
type driver struct {
	b        *bench
	req      operation.Request
	progress *workload.Progress
	attempts int
	notReady []string
}

func (b *bench) driver(req operation.Request) *driver { return &driver{b: b, req: req} }

// attempt makes one attempt.
func (d *driver) attempt() (workload.Result, error) {
	d.b.t.Helper()
	d.attempts++
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(patience)
	env.RegisterActivityWithOptions(d.b.acts.Run, activity.RegisterOptions{Name: operation.ActivityRun})
	if d.progress != nil {
		env.SetHeartbeatDetails(*d.progress)
	}
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		var p workload.Progress
		if details.Get(&p) == nil {
			d.progress = &p
		}
	})
	value, err := env.ExecuteActivity(operation.ActivityRun, d.req)
	if err != nil {
		return workload.Result{}, err
	}
	var result workload.Result
	require.NoError(d.b.t, value.Get(&result))
	return result, nil
}

// run makes attempts until one ends the operation.
func (d *driver) run() (workload.Result, error) {
	d.b.t.Helper()
	for d.attempts < 50 {
		result, err := d.attempt()
		var app *temporal.ApplicationError
		if errors.As(err, &app) && app.Type() == string(failure.NotReady) {
			d.notReady = append(d.notReady, app.Message())
			continue
		}
		return result, err
	}
	d.b.t.Fatalf("no end after %d attempts: %v", d.attempts, d.notReady)
	return workload.Result{}, nil
}

// must runs an operation that must succeed.
func (b *bench) must(req operation.Request) workload.Result {
	b.t.Helper()
	result, err := b.driver(req).run()
	require.NoError(b.t, err)
	return result
}

// fails runs an operation that must fail, and returns its error.
func (b *bench) fails(req operation.Request, kind failure.Kind) *temporal.ApplicationError {
	b.t.Helper()
	_, err := b.driver(req).run()
	return requireFailure(b.t, err, kind)
}

func requireFailure(t *testing.T, err error, kind failure.Kind) *temporal.ApplicationError {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(kind), app.Type(), app.Message())
	require.Equal(t, !kind.Retryable(), app.NonRetryable())
	return app
}

func requireNotReady(t *testing.T, err error) *temporal.ApplicationError {
	t.Helper()
	return requireFailure(t, err, failure.NotReady)
}
