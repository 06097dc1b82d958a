package workload_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	appsv1 "k8s.io/api/apps/v1"

	workloads "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

var notWanted = serviceerror.NewNotFound("the activity is not running")

// A pod needs a while to become ready: the attempt must learn of it from the watch, without polling.
func TestWatch_WakesWaitingAttempt(t *testing.T) {
	b := newBench(t)
	b.use(b.config, workloads.Options{ListenFor: 20 * time.Second})
	b.deployment("order", 0, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"dev.slipway.io/ready-after": "6s"}
	})
	one := int32(1)
	req := b.request(order, plan.Start, plan.Parallel)
	req.Workload.Replicas = &one
	b.warm()
	d := b.driver(req)
	_, err := d.run()
	require.NoError(t, err)
	require.Equal(t, 1, d.attempts, "one attempt waits long enough and sees the pod become ready; otherwise it would "+
		"have freed its worker slot")
	require.Less(t, b.traffic.count(http.MethodGet, "/deployments/order"), 12,
		"the workload is read when it changes, not repeatedly: %v", b.traffic.calls)
	require.LessOrEqual(t, b.traffic.count(http.MethodGet, "/pods?"), 5, "the pods are read rarely")
}

// warm starts the shared watch, as the first operation of a worker does.
func (b *bench) warm() {
	b.t.Helper()
	b.deployment("first", 1, nil)
	first := order
	first.Name = "first"
	b.must(b.request(first, plan.Stop, plan.Parallel))
	require.Eventually(b.t, func() bool { return b.traffic.watches() > 0 }, patience, tick)
}

// Several operations run at the same time.
func TestWatch_IsSharedByAttempts(t *testing.T) {
	b := newBench(t)
	var ends []<-chan error
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		b.deployment(name, 2, nil)
	}
	for _, name := range names {
		n := order
		n.Name = name
		b.settled(n, 2)
		ends = append(ends, b.inBackground(b.request(n, plan.Restart, plan.Sequential)))
	}
	for _, end := range ends {
		require.NoError(t, <-end)
	}
	require.LessOrEqual(t, b.traffic.watchesOf("/apis/apps/v1/deployments"), 1, "%v", b.traffic.calls)
}

// The attempt waits for pods that never become ready: it ends after the time for which it may wait, and reports its
// progress.
func TestWaitingAttempt_FreesWorkerSlot(t *testing.T) {
	b := newBench(t)
	b.use(b.config, workloads.Options{ListenFor: 3 * time.Second})
	b.deployment("order", 0, neverReady)
	two := int32(2)
	req := b.request(order, plan.Start, plan.Parallel)
	req.Workload.Replicas, req.DeadlineSeconds = &two, 600
	d := b.driver(req)
	_, err := d.attempt()
	app, before := requireNotReady(t, err), 0.0
	// a busy control plane delays the pods
	for tries := 0; tries < 10 && !strings.Contains(app.Message(), "containers with unready status"); tries++ {
		before = d.progress.ElapsedSeconds
		_, err = d.attempt()
		app = requireNotReady(t, err)
	}
	require.Contains(t, app.Message(), "NotReady: containers with unready status: [app]")
	require.Contains(t, app.Message(), "0 of 2 pods are ready: pod order-")
	require.Equal(t, 2*time.Second, app.NextRetryDelay())
	require.InDelta(t, 3, d.progress.ElapsedSeconds-before, 1.5)
	require.True(t, d.progress.Held)
	require.Equal(t, app.Message(), d.progress.Message)
	d.progress.ElapsedSeconds = 240
	_, err = d.attempt()
	require.InDelta(t, 12, requireNotReady(t, err).NextRetryDelay().Seconds(), 0.5,
		"the longer it takes, the longer the pause")
	_, err = b.acts.Restore(t.Context(), operation.RestoreRequest{Request: d.req})
	require.NoError(t, err)
	require.NotContains(t, b.state(order).annotations, workload.AnnotationClaimedBy)
}
