package workload

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/workload"
)

func as(t *testing.T, typed any) *unstructured.Unstructured {
	t.Helper()
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: o}
}

func adapter(key string) kind { return kind{workload.ByKey(key)} }

// TestObserve_ReadsEachKind reads each kind with the field names of the API server.
func TestObserve_ReadsEachKind(t *testing.T) {
	t.Parallel()
	quarter, one := intstr.FromString("25%"), intstr.FromInt32(1)
	three, terminating, partition := int32(3), int32(1), int32(2)
	meta := metav1.ObjectMeta{Name: "order", Generation: 7,
		Annotations: map[string]string{workload.AnnotationClaimedBy: "w@r", annotationRevision: "4"}}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{workload.AnnotationRestartedBy: "t1/1"}}}
	seen := func(change func(*operation.Observed)) operation.Observed {
		o := operation.Observed{Snapshot: workload.Snapshot{Claim: "w@r", Generation: 7, ObservedGeneration: 6,
			Replicas: 3, Total: 5, Ready: 4, Available: 2, Updated: 1}, UpdateType: workload.UpdateRolling,
			Marker: "t1/1"}
		change(&o)
		return o
	}
	for kind, tc := range map[string]struct {
		object any
		want   operation.Observed
	}{
		"apps/Deployment": {
			object: &appsv1.Deployment{ObjectMeta: meta,
				Spec: appsv1.DeploymentSpec{Replicas: &three, Template: template, Paused: true,
					Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
						RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &quarter, MaxSurge: &one}}},
				Status: appsv1.DeploymentStatus{ObservedGeneration: 6, Replicas: 5, ReadyReplicas: 4,
					AvailableReplicas: 2, UpdatedReplicas: 1, TerminatingReplicas: &terminating,
					Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure,
						Status: corev1.ConditionTrue, Message: "exceeded quota"}}}},
			want: seen(func(o *operation.Observed) {
				o.Paused, o.Terminating, o.Revision, o.Creation.Message = true, &terminating, "4", "exceeded quota"
				o.Settings = map[string]json.RawMessage{workload.PathDeploymentUnavailable: json.RawMessage(`"25%"`),
					workload.PathDeploymentSurge: json.RawMessage(`1`)}
			}),
		},
		"apps/StatefulSet": {
			object: &appsv1.StatefulSet{ObjectMeta: meta,
				Spec: appsv1.StatefulSetSpec{Replicas: &three, Template: template,
					PodManagementPolicy: appsv1.OrderedReadyPodManagement,
					Ordinals:            &appsv1.StatefulSetOrdinals{Start: 10},
					UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType,
						RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition}}},
				Status: appsv1.StatefulSetStatus{ObservedGeneration: 6, Replicas: 5, ReadyReplicas: 4,
					AvailableReplicas: 2, UpdatedReplicas: 1, UpdateRevision: "order-abc"}},
			want: seen(func(o *operation.Observed) {
				o.OrderedReady, o.Partition, o.FirstOrdinal, o.Revision = true, 2, 10, "order-abc"
				o.Settings = map[string]json.RawMessage{workload.PathUpdateStrategy: json.RawMessage(
					`{"rollingUpdate":{"partition":2},"type":"RollingUpdate"}`)}
			}),
		},
		"apps/DaemonSet": {
			object: &appsv1.DaemonSet{ObjectMeta: meta,
				Spec: appsv1.DaemonSetSpec{Template: template, UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
					Type:          appsv1.RollingUpdateDaemonSetStrategyType,
					RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one, MaxSurge: &quarter}}},
				Status: appsv1.DaemonSetStatus{ObservedGeneration: 6, DesiredNumberScheduled: 3,
					CurrentNumberScheduled: 5, NumberReady: 4, NumberAvailable: 2, UpdatedNumberScheduled: 1}},
			want: seen(func(o *operation.Observed) {
				o.Settings = map[string]json.RawMessage{workload.PathUpdateUnavailable: json.RawMessage(`1`),
					workload.PathUpdateSurge: json.RawMessage(`"25%"`)}
			}),
		},
	} {
		require.Equal(t, tc.want, adapter(kind).observe(as(t, tc.object)).seen, kind)
	}
	bare := adapter("apps/Deployment").observe(&unstructured.Unstructured{Object: map[string]any{}})
	require.Equal(t, int32(1), bare.seen.Replicas, "a missing size means 1")
}

// TestOwns_ComparesController distinguishes a workload's pods from others that its selector matches.
func TestOwns_ComparesController(t *testing.T) {
	t.Parallel()
	yes := true
	pod := func(kind, name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			appsv1.DefaultDeploymentUniqueLabelKey: "abc"},
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: name, UID: "u-1", Controller: &yes}}}}
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetName("order")
	o.SetUID("u-1")
	owns := adapter("apps/Deployment").owns
	require.True(t, owns(o, pod("ReplicaSet", "order-abc")))
	require.False(t, owns(o, pod("ReplicaSet", "orders-abc")), "a pod of another Deployment")
	require.False(t, owns(o, &corev1.Pod{}), "a pod without an owner")
	require.True(t, adapter("apps/StatefulSet").owns(o, pod("StatefulSet", "order")))
	o.SetUID("u-2")
	require.False(t, adapter("apps/StatefulSet").owns(o, pod("StatefulSet", "order")),
		"a pod of a deleted workload with the same name")
}
