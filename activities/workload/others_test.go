package workload_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

var errDown = errors.New("connection refused")

func neverReady(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "x:never-ready" }

// inBackground runs an operation in parallel to the test, and returns its error on the channel.
func (b *bench) inBackground(req operation.Request) <-chan error {
	ended := make(chan error, 1)
	d := b.driver(req)
	go func() {
		_, err := d.run()
		ended <- err
	}()
	return ended
}

// begin runs an operation until it has made its first write.
func (b *bench) begin(req operation.Request) <-chan error {
	b.t.Helper()
	ended := b.inBackground(req)
	require.Eventually(b.t, func() bool { return b.traffic.written() > 0 }, patience, tick, "it did not start")
	return ended
}

func TestStart_FollowsSizeSetByAnotherClient(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 0, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"dev.slipway.io/ready-after": "2s"}
	})
	before := b.state(order)
	three := int32(3)
	req := b.request(order, plan.Start, plan.Sequential)
	req.Workload.Replicas = &three
	d := b.driver(req)
	ended := make(chan string, 1)
	go func() {
		result, err := d.run()
		if err != nil {
			result.Message = err.Error()
		}
		ended <- result.Message
	}()
	b.until(order, "begun", func(w workloadState) bool { return w.replicas == 1 })
	b.merge(order, `{"spec":{"replicas":2}}`)
	require.Equal(t, "started: 2 of 2 pods are ready; another client scaled it from 1 to 2 meanwhile", <-ended,
		"the size of the other client is kept")
	after := b.requireTidy(order, before)
	require.Equal(t, int64(2), after.replicas)
}

func TestStart_FailsWhenScaledToZero(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 0, neverReady)
	three := int32(3)
	req := b.request(order, plan.Start, plan.Parallel)
	req.Workload.Replicas = &three
	ended := b.begin(req)
	b.merge(order, `{"spec":{"replicas":0}}`)
	app := requireFailure(t, <-ended, failure.WorkloadFailed)
	require.Contains(t, app.Message(), "another client scaled it to zero while it was being started")
}

func TestStop_FailsWhenScaledUp(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"dev.slipway.io/delete-after": "3s"}
	})
	b.settled(order, 2)
	ended := b.begin(b.request(order, plan.Stop, plan.Parallel))
	b.merge(order, `{"spec":{"replicas":5}}`)
	app := requireFailure(t, <-ended, failure.WorkloadFailed)
	require.Contains(t, app.Message(), "another client scaled it from 0 to 5 while it was being stopped: find out "+
		"which one (an autoscaler?)")
	after := b.state(order)
	require.Equal(t, int64(5), after.replicas, "the size of the other client is kept")
	require.NotContains(t, after.annotations, workload.AnnotationReplicas, "the size of the other client counts")
	require.NotContains(t, after.annotations, workload.AnnotationClaimedBy)
}

func TestRestart_FailsWhenMarkerRemoved(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, slowDeployment)
	b.settled(order, 2)
	before := b.state(order)
	ended := b.begin(b.request(order, plan.Restart, plan.Sequential))
	b.merge(order, `{"spec":{"template":{"metadata":{"annotations":{"slipway.io/restarted-by":null}}}}}`)
	app := requireFailure(t, <-ended, failure.WorkloadFailed)
	require.Contains(t, app.Message(), "another client changed its pod template while it was being restarted")
	b.requireTidy(order, before)
}

func slowDeployment(d *appsv1.Deployment) {
	d.Spec.Template.Annotations = map[string]string{"dev.slipway.io/ready-after": "2s"}
}

func TestRestart_KeepsEditOfBorrowedSettings(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, slowDeployment)
	b.settled(order, 2)
	req := b.request(order, plan.Restart, plan.Parallel)
	d := b.driver(req)
	ended := make(chan workload.Result, 1)
	go func() {
		result, _ := d.run()
		ended <- result
	}()
	b.until(order, "begun", func(w workloadState) bool { return w.marker != "" })
	b.merge(order, `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":3}}}}`)
	result := <-ended
	require.Equal(t, "restarted: 2 of 2 pods are ready; another client changed /spec/strategy/rollingUpdate/maxSurge "+
		"meanwhile, which is left unchanged", result.Message)
	deployment, err := b.kube.AppsV1().Deployments(b.namespace).Get(t.Context(), "order", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "3", deployment.Spec.Strategy.RollingUpdate.MaxSurge.String(), "the other client's edit is kept")
	require.Equal(t, "25%", deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.String(),
		"the other settings are restored")
}

func TestStart_FailsWhenWorkloadDeleted(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 0, neverReady)
	one := int32(1)
	req := b.request(order, plan.Start, plan.Parallel)
	req.Workload.Replicas = &one
	ended := b.begin(req)
	require.NoError(t, b.kube.AppsV1().Deployments(b.namespace).Delete(t.Context(), "order", metav1.DeleteOptions{}))
	app := requireFailure(t, <-ended, failure.WorkloadFailed)
	require.Contains(t, app.Message(), "deleted by another client")
}

func TestRestart_FailsWhenPaused(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, slowDeployment)
	b.settled(order, 2)
	req := b.request(order, plan.Restart, plan.Sequential)
	req.DeadlineSeconds = 5
	ended := b.begin(req)
	b.merge(order, `{"spec":{"paused":true}}`)
	app := requireFailure(t, <-ended, failure.WorkloadFailed)
	require.Contains(t, app.Message(), "another client paused it meanwhile: continue it with `kubectl rollout resume`")
}

func TestNothingToDo(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		pods    int32
		op      plan.Operation
		message string
	}{
		"started already": {"a running workload is already started", 2, plan.Start,
			"nothing to do: 2 of 2 pods are ready"},
		"stopped already": {"a workload without pods is already stopped", 0, plan.Stop,
			"nothing to do: it is stopped, no pod is left"},
		"restart of none": {"there is no pod to restart, and nothing is stamped", 0, plan.Restart,
			"nothing to do: it has no pods"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.deployment("order", tc.pods, nil)
			b.settled(order, int(tc.pods))
			before := b.state(order)
			result := b.must(b.request(order, tc.op, plan.Sequential))
			require.Equal(t, tc.message, result.Message, tc.reason)
			require.False(t, result.Changed)
			require.Zero(t, b.traffic.count("PATCH", ""), "no write is made, not even a claim")
			require.Equal(t, before, b.state(order))
		})
	}
}

func TestStart_WaitsForPodsAlreadyStarting(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, slowDeployment)
	before := b.state(order)
	result := b.must(b.request(order, plan.Start, plan.Parallel))
	require.Equal(t, "nothing to do but wait: 2 of 2 pods are ready", result.Message)
	require.False(t, result.Changed)
	b.requireTidy(order, before)
}

func TestRun_RefusesImpossibleRequests(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(b *bench)
		req    func(b *bench) operation.Request
		says   string
	}{
		"paused": {
			change: func(b *bench) { b.deployment("order", 1, func(d *appsv1.Deployment) { d.Spec.Paused = true }) },
			req:    func(b *bench) operation.Request { return b.request(order, plan.Restart, plan.Parallel) },
			says:   "is paused, so nothing would be restarted: resume it with `kubectl rollout resume` first",
		},
		"partition": {
			change: func(b *bench) {
				two := int32(2)
				b.statefulSet("order", 3, func(s *appsv1.StatefulSet) {
					s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: &two}
				})
			},
			req: func(b *bench) operation.Request {
				req := b.request(order, plan.Restart, plan.Sequential)
				req.Workload.WorkloadRef.Kind = "StatefulSet"
				return req
			},
			says: "is held at partition 2 by an unfinished rollout",
		},
		"no size": {
			change: func(b *bench) { b.deployment("order", 0, nil) },
			req:    func(b *bench) operation.Request { return b.request(order, plan.Start, plan.Parallel) },
			says:   "has no pods and no size is known to start it with: give it `replicas` in the catalogue",
		},
		"a DaemonSet has no size": {
			change: func(b *bench) { b.daemonSet("order", nil) },
			req: func(b *bench) operation.Request {
				req := b.request(order, plan.Stop, plan.Parallel)
				req.Workload.WorkloadRef.Kind = "DaemonSet"
				return req
			},
			says: "has no size, since a DaemonSet runs on every node: STOP cannot act on it; use RESTART",
		},
		"another kind": {
			change: func(*bench) {},
			req: func(b *bench) operation.Request {
				req := b.request(order, plan.Stop, plan.Parallel)
				req.Workload.WorkloadRef.APIVersion, req.Workload.WorkloadRef.Kind = "apps.kruise.io/v1alpha1",
					"CloneSet"
				return req
			},
			says: "of apps.kruise.io/v1alpha1 cannot be released",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			tc.change(b)
			req := tc.req(b)
			require.Contains(t, b.fails(req, failure.Refused).Message(), tc.says)
			require.Zero(t, b.traffic.count("PATCH", ""), "a refusal writes nothing")
			checked, err := b.acts.Preflight(t.Context(),
				operation.PreflightRequest{Requests: []operation.Request{req}})
			require.NoError(t, err)
			require.Len(t, checked.Refusals, 1, "the preflight refuses it as well")
			require.Contains(t, checked.Refusals[0].Reason, tc.says)
		})
	}
}

func TestRun_FailsWhenWorkloadMissing(t *testing.T) {
	b := newBench(t)
	app := b.fails(b.request(order, plan.Stop, plan.Parallel), failure.NotFound)
	require.Contains(t, app.Message(), "does not exist: create it, or remove it from the catalogue")
}
