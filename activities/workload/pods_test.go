package workload

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func waiting(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func TestPodReason(t *testing.T) {
	t.Parallel()
	exited := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	looping := waiting("CrashLoopBackOff", "back-off 10s restarting failed container")
	looping.LastTerminationState.Terminated = exited
	grace := int64(30)
	cases := map[string]struct {
		reason string
		pod    corev1.Pod
		want   [2]string
	}{
		"pull": {"the registry's word", corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ContainerCreating", ""), waiting("ImagePullBackOff", `Back-off pulling image "x:bad"`)}}},
			[2]string{"ImagePullBackOff", `Back-off pulling image "x:bad"`}},
		"init": {"an init container comes before the others", corev1.Pod{Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{waiting("CreateContainerConfigError", `secret "s" not found`)}, ContainerStatuses: []corev1.ContainerStatus{waiting("PodInitializing", "")}}},
			[2]string{"CreateContainerConfigError", `secret "s" not found`}},
		"loop": {"a crash loop with its last exit", corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{looping}}},
			[2]string{"CrashLoopBackOff", "back-off 10s restarting failed container (last exit code 137)"}},
		"exit": {"a container that has just ended", corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Terminated: exited}}}}},
			[2]string{"OOMKilled", "container app ended with exit code 137"}},
		"unschedulable": {"the scheduler's word", corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/4 nodes"}}}},
			[2]string{"Unschedulable", "0/4 nodes"}},
		"not ready": {"a probe that fails", corev1.Pod{Status: corev1.PodStatus{
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "containers with unready status: [app]"}},
			ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}},
			[2]string{"NotReady", "containers with unready status: [app]"}},
		"gate": {"a readiness gate has a reason of its own", corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady", Message: "g"}}}},
			[2]string{"ReadinessGatesNotReady", "g"}},
		"evicted":  {"a pod that the node threw out", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "disk"}}, [2]string{"Evicted", "disk"}},
		"unseen":   {"a pod that no node has reported on", corev1.Pod{}, [2]string{"Pending", "its node has not reported on it yet"}},
		"deleting": {"a pod on its way out", corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(0, 0)}, DeletionGracePeriodSeconds: &grace}}, [2]string{"Terminating", "it should be gone by 00:00:00, after 30 s of grace"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reason, message := podReason(&tc.pod)
			require.Equal(t, tc.want, [2]string{reason, message}, tc.reason)
		})
	}
}

func TestPodSeen(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	pod := func(ready corev1.ConditionStatus, since time.Duration) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p-7", CreationTimestamp: metav1.NewTime(at.Add(-time.Hour))},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(at.Add(-since))}}}}
	}
	require.True(t, podSeen(pod(corev1.ConditionTrue, time.Second), 0, at).Available)
	require.False(t, podSeen(pod(corev1.ConditionTrue, 9*time.Second), 10, at).Available, "ready, but not for minReadySeconds")
	require.True(t, podSeen(pod(corev1.ConditionTrue, 10*time.Second), 10, at).Available)
	seen := podSeen(pod(corev1.ConditionFalse, time.Minute), 0, at)
	require.False(t, seen.Ready)
	require.Equal(t, at.Add(-time.Minute), seen.Since, "it has been out since it stopped being ready")
	require.Equal(t, int32(-1), seen.Ordinal, "a number at the end of a name is an ordinal for a StatefulSet's pod only")
	yes := true
	stateful := pod(corev1.ConditionTrue, 0)
	stateful.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Controller: &yes}}
	require.Equal(t, int32(7), podSeen(stateful, 0, at).Ordinal)
	looping := pod(corev1.ConditionFalse, time.Second)
	looping.Status.ContainerStatuses = []corev1.ContainerStatus{waiting("CrashLoopBackOff", "")}
	require.Equal(t, at.Add(-time.Hour), podSeen(looping, 0, at).Since, "a crash loop passes through readiness again and again")
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b c", oneLine("a\n\tb  c\n"))
	require.LessOrEqual(t, len(oneLine(strings.Repeat("ä", 900))), lineLimit+len(" …"))
}
