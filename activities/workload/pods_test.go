package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodSeen(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	pod := func(ready corev1.ConditionStatus, since time.Duration) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p-7",
			CreationTimestamp: metav1.NewTime(at.Add(-time.Hour))},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready,
				LastTransitionTime: metav1.NewTime(at.Add(-since))}}}}
	}
	require.True(t, podSeen(pod(corev1.ConditionTrue, time.Second), 0, at).Available)
	require.False(t, podSeen(pod(corev1.ConditionTrue, 9*time.Second), 10, at).Available,
		"ready, but not for minReadySeconds")
	require.True(t, podSeen(pod(corev1.ConditionTrue, 10*time.Second), 10, at).Available)
	seen := podSeen(pod(corev1.ConditionFalse, time.Minute), 0, at)
	require.False(t, seen.Ready)
	require.Equal(t, at.Add(-time.Minute), seen.Since, "it has been unavailable since it stopped being ready")
	require.Equal(t, int32(-1), seen.Ordinal, "only for a StatefulSet's pod a number at the end of the name is an "+
		"ordinal")
	yes := true
	stateful := pod(corev1.ConditionTrue, 0)
	stateful.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet",
		Controller: &yes}}
	require.Equal(t, int32(7), podSeen(stateful, 0, at).Ordinal)
	looping := pod(corev1.ConditionFalse, time.Second)
	looping.Status.ContainerStatuses =
		[]corev1.ContainerStatus{
			{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	require.Equal(t, at.Add(-time.Hour), podSeen(looping, 0, at).Since,
		"a crash-looping pod becomes ready again and again")
}
