package workload_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	appsv1 "k8s.io/api/apps/v1"

	workloads "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// oneOperation runs one operation as the real workflow does, with an unlimited retry policy.
func oneOperation(ctx workflow.Context, req operation.Request) (workload.Result, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 30 * time.Second, HeartbeatTimeout: 10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1},
	})
	var result workload.Result
	err := workflow.ExecuteActivity(ctx, operation.ActivityRun, req).Get(ctx, &result)
	return result, err
}

// served is a worker on a real Temporal server.
type served struct {
	t      *testing.T
	client client.Client
	queue  string
}

func (b *bench) serve(options workloads.Options) served {
	b.t.Helper()
	c, err := client.Dial(client.Options{HostPort: os.Getenv("SLIPWAY_TEST_TEMPORAL_ADDRESS"), Logger: quiet{}})
	require.NoError(b.t, err)
	b.t.Cleanup(c.Close)
	b.recorder = nil
	b.use(b.config, options)
	s := served{t: b.t, client: c, queue: fmt.Sprintf("workload-%08x", rand.Uint32())}
	w := worker.New(c, s.queue, worker.Options{DisableRegistrationAliasing: true, WorkerStopTimeout: 5 * time.Second})
	w.RegisterWorkflowWithOptions(oneOperation, workflow.RegisterOptions{Name: "oneOperation"})
	b.acts.Register(w)
	require.NoError(b.t, w.Start())
	b.t.Cleanup(w.Stop)
	return s
}

type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

func (s served) start(req operation.Request) client.WorkflowRun {
	s.t.Helper()
	run, err := s.client.ExecuteWorkflow(s.t.Context(), client.StartWorkflowOptions{ID: s.queue, TaskQueue: s.queue},
		"oneOperation", req)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = s.client.TerminateWorkflow(s.t.Context(), s.queue, "", "the test has ended") })
	return run
}

// pending is Temporal's state of the running activity: its attempt, and its last heartbeat.
func (s served) pending() (attempt int32, p workload.Progress) {
	s.t.Helper()
	d, err := s.client.DescribeWorkflowExecution(s.t.Context(), s.queue, "")
	require.NoError(s.t, err)
	for _, a := range d.PendingActivities {
		attempt = a.Attempt
		if a.HeartbeatDetails != nil {
			payloads := &commonpb.Payloads{Payloads: a.HeartbeatDetails.Payloads}
			require.NoError(s.t, converter.GetDefaultDataConverter().FromPayloads(payloads, &p))
		}
	}
	return attempt, p
}

// The design of the deadline relies on this: on a real server, the last heartbeat of an attempt that ends with an error
// reaches the next attempt, so that the used time adds up.
func TestProgress_PassesToNextAttempt_OnRealServer(t *testing.T) {
	b := newBench(t)
	s := b.serve(workloads.Options{ListenFor: time.Second})
	b.deployment("order", 0, neverReady)
	one := int32(1)
	req := b.request(order, plan.Start, plan.Parallel)
	req.Workload.Replicas, req.DeadlineSeconds = &one, 16
	began := time.Now()
	run := s.start(req)
	require.Eventually(t, func() bool {
		attempt, p := s.pending()
		return attempt >= 3 && p.ElapsedSeconds > 4 && p.Held && p.Message != ""
	}, patience, tick, "the progress must add up from attempt to attempt")
	var result workload.Result
	err := run.Get(t.Context(), &result)
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(failure.WorkloadFailed), app.Type())
	require.Contains(t, app.Message(), "0 of 1 pods are ready after 16 s: pod order-")
	took := time.Since(began).Seconds()
	require.GreaterOrEqual(t, took, 15.0, "it has its full deadline")
	require.Less(t, took, 60.0, "the pauses between the attempts count too: without them, sixteen attempts of a "+
		"second would need minutes")
}

// Just before the last write the result must be recorded in Temporal, even if the SDK throttles heartbeats. Then the
// answer of that write is lost, and the next attempt still returns the result.
func TestResult_IsRecordedBeforeLastWrite_OnRealServer(t *testing.T) {
	b := newBench(t)
	s := b.serve(workloads.Options{})
	b.deployment("order", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"dev.slipway.io/delete-after": "1s"}
	})
	b.settled(order, 2)
	recorded := make(chan workload.Progress, 1)
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPatch || b.traffic.written() < 2 || len(recorded) > 0 {
			return nil, nil
		}
		_, p := s.pending()
		recorded <- p
		response, err := b.traffic.next.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		panic("the process dies here") // the SDK fails the attempt without calling it again
	})
	var result workload.Result
	require.NoError(t, s.start(b.request(order, plan.Stop, plan.Sequential)).Get(t.Context(), &result))
	p := <-recorded
	require.NotNil(t, p.Ending, "the result must be recorded before the claim is released")
	require.Equal(t, result, *p.Ending.Result)
	require.True(t, result.Changed, result.Message)
	require.Equal(t, "stopped: no pod is left", result.Message)
	require.Equal(t, int32(2), *result.FromReplicas)
}
