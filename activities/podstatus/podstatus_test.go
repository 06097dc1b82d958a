package podstatus_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/podstatus"
)

func waiting(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "app",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
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
		"pull": {"the image can't be pulled",
			corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ContainerCreating",
				""), waiting("ImagePullBackOff", `Back-off pulling image "x:bad"`)}}},
			[2]string{"ImagePullBackOff", `Back-off pulling image "x:bad"`}},
		"init": {"an init container comes before the others", corev1.Pod{Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{waiting("CreateContainerConfigError",
				`secret "s" not found`)}, ContainerStatuses: []corev1.ContainerStatus{waiting("PodInitializing", "")}}},
			[2]string{"CreateContainerConfigError", `secret "s" not found`}},
		"loop": {"a crash loop with its last exit code",
			corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{looping}}},
			[2]string{"CrashLoopBackOff", "back-off 10s restarting failed container (last exit code 137)"}},
		"exit": {"a container that has just ended",
			corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "app",
				State: corev1.ContainerState{Terminated: exited}}}}},
			[2]string{"OOMKilled", "container app ended with exit code 137"}},
		"unschedulable": {"the scheduler's reason",
			corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled,
				Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/4 nodes"}}}},
			[2]string{"Unschedulable", "0/4 nodes"}},
		"not ready": {"a probe that fails", corev1.Pod{Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse,
				Reason: "ContainersNotReady", Message: "containers with unready status: [app]"}},
			ContainerStatuses: []corev1.ContainerStatus{
				{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}},
			[2]string{"NotReady", "containers with unready status: [app]"}},
		"gate": {"a readiness gate has a reason of its own",
			corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady,
				Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady", Message: "g"}}}},
			[2]string{"ReadinessGatesNotReady", "g"}},
		"evicted": {"a pod that the node evicted",
			corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "disk"}},
			[2]string{"Evicted", "disk"}},
		"unseen": {"a pod that no node has reported on", corev1.Pod{},
			[2]string{"Pending", "its node has not reported on it yet"}},
		"deleting": {"a pod that is being deleted",
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(0, 0)},
				DeletionGracePeriodSeconds: &grace}},
			[2]string{"Terminating", "it should be deleted by 00:00:00, after a grace period of 30 s"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reason, message := podstatus.Reason(&tc.pod)
			require.Equal(t, tc.want, [2]string{reason, message}, tc.reason)
		})
	}
}
