package workload_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	workloads "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/observer"
)

// situation is one workload and the operation on it.
type situation struct {
	reason  string
	kind    string
	op      plan.Operation
	method  plan.Method
	pods    int
	make    func(b *bench, name string)
	writes  int
	message string
	// oneOut is true when at most one pod may be unavailable at any time.
	oneOut bool
	// onHand is true when its controller replaces a pod only after another client has deleted it.
	onHand bool
	// generations is the growth of the generation: by the changes of the spec, and for a Deployment also by those of
	// its annotations.
	generations int
}

func amount(value string) *intstr.IntOrString {
	v := intstr.Parse(value)
	return &v
}

func deploymentOf(replicas int32, change func(*appsv1.Deployment)) func(b *bench, name string) {
	return func(b *bench, name string) { b.deployment(name, replicas, change) }
}

func statefulSetOf(replicas int32, change func(*appsv1.StatefulSet)) func(b *bench, name string) {
	return func(b *bench, name string) { b.statefulSet(name, replicas, change) }
}

func daemonSetOf(change func(*appsv1.DaemonSet)) func(b *bench, name string) {
	return func(b *bench, name string) { b.daemonSet(name, change) }
}

func burst(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

func slowly(t *corev1.PodTemplateSpec) {
	t.Annotations = map[string]string{"dev.slipway.io/ready-after": "300ms", "example.com/kept": "yes"}
}

var situations = map[string]situation{
	"deployment/RESTART/PARALLEL": {
		reason: "a Deployment is restarted with two writes", kind: "Deployment", op: plan.Restart,
		method: plan.Parallel, pods: 3,
		make: deploymentOf(3, nil), writes: 2, generations: 2, message: "restarted: 3 of 3 pods are ready",
	},
	"deployment/RESTART/SEQUENTIAL": {
		reason: "a Deployment is restarted pod by pod with two writes, its own settings kept", kind: "Deployment",
		op: plan.Restart, method: plan.Sequential, pods: 4,
		make: deploymentOf(4, func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: amount("50%"),
				MaxSurge: amount("3")}
			d.Spec.MinReadySeconds = 1
			slowly(&d.Spec.Template)
		}), writes: 2, generations: 2, message: "restarted: 4 of 4 pods are ready", oneOut: true,
	},
	"deployment/RESTART/Recreate": {
		reason: "a Deployment of type Recreate is restarted as such, and the message says so", kind: "Deployment",
		op: plan.Restart, method: plan.Sequential, pods: 2,
		make: deploymentOf(2, func(d *appsv1.Deployment) {
			d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		}),
		writes: 2, generations: 2, message: "restarted: 2 of 2 pods are ready; its update type is Recreate, so all " +
			"of them went down before new ones came up",
	},
	"statefulset/RESTART/SEQUENTIAL": {
		reason: "a StatefulSet restarts itself pod by pod", kind: "StatefulSet", op: plan.Restart,
		method: plan.Sequential, pods: 3,
		make: statefulSetOf(3, func(s *appsv1.StatefulSet) {
			slowly(&s.Spec.Template)
		}), writes: 2, generations: 1, message: "restarted: 3 of 3 pods are ready", oneOut: true,
	},
	"statefulset/RESTART/PARALLEL": {
		reason: "a StatefulSet's pods are deleted all at once", kind: "StatefulSet", op: plan.Restart,
		method: plan.Parallel, pods: 3,
		make: statefulSetOf(3, burst), writes: 2, generations: 2, message: "restarted: 3 of 3 pods are ready",
	},
	"statefulset/RESTART/PARALLEL/ordered": {
		reason: "they come back in order where the StatefulSet requires it", kind: "StatefulSet", op: plan.Restart,
		method: plan.Parallel, pods: 3,
		make: statefulSetOf(3, nil), writes: 2, generations: 2, message: "restarted: 3 of 3 pods are ready",
	},
	"statefulset/RESTART/SEQUENTIAL/OnDelete": {
		reason: "with OnDelete the pods of a StatefulSet are deleted one by one", kind: "StatefulSet", op: plan.Restart,
		method: plan.Sequential, pods: 3,
		make: statefulSetOf(3, func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
			s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
			slowly(&s.Spec.Template)
		}), writes: 2, generations: 1, message: "restarted: 3 of 3 pods are ready", oneOut: true,
	},
	"daemonset/RESTART/SEQUENTIAL": {
		reason: "a DaemonSet is restarted node by node, despite its own limit", kind: "DaemonSet", op: plan.Restart,
		method: plan.Sequential, pods: 4,
		make: daemonSetOf(func(d *appsv1.DaemonSet) {
			d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: amount("3")}
			slowly(&d.Spec.Template)
		}), writes: 2, generations: 2, message: "restarted: 4 of 4 pods are ready", oneOut: true,
	},
	"daemonset/RESTART/PARALLEL": {
		reason: "a DaemonSet that surges is restarted on all nodes at once", kind: "DaemonSet", op: plan.Restart,
		method: plan.Parallel, pods: 4,
		make: daemonSetOf(func(d *appsv1.DaemonSet) {
			d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: amount("0"),
				MaxSurge: amount("1")}
		}), writes: 2, generations: 2, message: "restarted: 4 of 4 pods are ready",
	},
	"daemonset/RESTART/SEQUENTIAL/OnDelete": {
		reason: "with OnDelete the pods of a DaemonSet are deleted one by one", kind: "DaemonSet", op: plan.Restart,
		method: plan.Sequential, pods: 4,
		make: daemonSetOf(func(d *appsv1.DaemonSet) {
			d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
			slowly(&d.Spec.Template)
		}), writes: 2, generations: 1, message: "restarted: 4 of 4 pods are ready", oneOut: true,
	},
	"deployment/STOP/PARALLEL": {reason: "two writes", kind: "Deployment", op: plan.Stop, method: plan.Parallel,
		pods: 3, make: deploymentOf(3, nil), writes: 2, generations: 2, message: "stopped: no pod is left"},
	"deployment/STOP/SEQUENTIAL": {reason: "one pod fewer at a time", kind: "Deployment", op: plan.Stop,
		method: plan.Sequential, pods: 3, make: deploymentOf(3, nil), writes: 4, generations: 4,
		message: "stopped: no pod is left", oneOut: true},
	"statefulset/STOP/PARALLEL": {reason: "its order does not delay a STOP", kind: "StatefulSet", op: plan.Stop,
		method: plan.Parallel, pods: 3, make: statefulSetOf(3, nil), writes: 2, generations: 1,
		message: "stopped: no pod is left"},
	"statefulset/STOP/SEQUENTIAL": {reason: "one pod fewer at a time", kind: "StatefulSet", op: plan.Stop,
		method: plan.Sequential, pods: 3, make: statefulSetOf(3, nil), writes: 4, generations: 3,
		message: "stopped: no pod is left", oneOut: true},
}

func TestOperations(t *testing.T) {
	t.Parallel()
	for name, s := range situations {
		t.Run(name, func(t *testing.T) { newBench(t).play(s) })
	}
}

// play carries out one situation, and after a STOP the START that reverses it.
func (b *bench) play(s situation) {
	name := observer.Name{Kind: s.kind, Name: "order"}
	s.make(b, name.Name)
	b.settled(name, s.pods)
	before, old := b.state(name), uids(b.pods(name.Name))
	watched := observer.Start(b.t, b.kube, b.namespace)
	result := b.must(b.request(name, s.op, s.method))
	require.Equal(b.t, s.message, result.Message, s.reason)
	require.True(b.t, result.Changed)
	require.Equal(b.t, s.writes, b.traffic.written(), s.reason)
	after := b.requireTidy(name, before)
	require.Equal(b.t, before.generation+int64(s.generations), after.generation, s.reason)
	if s.op == plan.Stop {
		require.Empty(b.t, b.pods(name.Name), s.reason)
		require.Equal(b.t, "3", after.annotations[workload.AnnotationReplicas], "its size must be stored")
		require.Equal(b.t, int32(3), *result.FromReplicas)
		require.Equal(b.t, int32(0), *result.ToReplicas)
		b.playStart(s, name, before)
	} else {
		require.Equal(b.t, "t1/1", after.marker)
		require.Equal(b.t, before.replicas, after.replicas)
		require.NotEmpty(b.t, result.FromRevision)
		require.NotEmpty(b.t, result.ToRevision)
		require.NotEqual(b.t, result.FromRevision, result.ToRevision)
		for uid := range uids(b.pods(name.Name)) {
			require.NotContains(b.t, old, uid, "every pod must be a new one")
		}
		require.Len(b.t, watched.Timeline(b.t).Created[name], s.pods, "no pod may be restarted twice:\n%s",
			watched.Timeline(b.t))
	}
	if s.oneOut {
		watched.RequireAtMostOneUnavailable(b.t, name)
	}
}

// playStart starts the stopped workload, with the same method.
func (b *bench) playStart(s situation, name observer.Name, before workloadState) {
	b.use(b.config, workloads.Options{})
	watched := observer.Start(b.t, b.kube, b.namespace)
	result := b.must(b.request(name, plan.Start, s.method))
	require.Equal(b.t, "started: 3 of 3 pods are ready", result.Message)
	require.Equal(b.t, s.writes, b.traffic.written(), "as many writes as the STOP took")
	after := b.requireTidy(name, before)
	require.Equal(b.t, before.replicas, after.replicas)
	require.NotContains(b.t, after.annotations, workload.AnnotationReplicas, "the stored size is removed")
	require.Equal(b.t, int32(0), *result.FromReplicas)
	require.Equal(b.t, int32(3), *result.ToReplicas)
	if s.method == plan.Sequential {
		watched.RequireAtMostOneUnavailable(b.t, name)
	}
}

func uids(list []corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for _, p := range list {
		out[string(p.UID)] = true
	}
	return out
}
