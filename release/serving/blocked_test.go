package serving_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

func TestCheckPodsAllowed(t *testing.T) {
	t.Parallel()
	const (
		security = `pods "s1-5d-x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`
		quota    = `pods "s1-5d-x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4`
	)
	for name, tc := range map[string]struct {
		reason, message          string
		waited, lasted, deadline time.Duration
		kind                     string
		refused                  bool
	}{
		"pod security": {reason: "a rule on pods does not change by itself", message: security,
			waited: 10 * time.Second, lasted: 10 * time.Second, refused: true},
		"webhook": {reason: "nor does a webhook", message: `admission webhook "a.b" denied the request: no`,
			waited: time.Minute, lasted: time.Minute, refused: true},
		"policy": {reason: "nor does a policy of the API server",
			message: `pods "s1" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`,
			waited:  time.Minute, lasted: time.Minute, refused: true},
		"just begun": {reason: "it may be left by an earlier operation, and the controllers are about to retry",
			message: security, waited: 9 * time.Second, lasted: time.Hour},
		"new": {reason: "the rule may have been changed a moment ago", message: security, waited: time.Hour,
			lasted: 9 * time.Second},
		"quota at once": {reason: "terminating pods free quota", message: quota, waited: 59 * time.Second,
			lasted: time.Hour},
		"quota": {reason: "after a minute quota is unlikely to become free", message: quota,
			waited: time.Minute, lasted: time.Minute, refused: true},
		"short of time": {reason: "the wait is at most half the deadline", message: quota, deadline: 40 * time.Second,
			waited: 20 * time.Second, lasted: 20 * time.Second, refused: true},
		"no answer": {reason: "an unreachable webhook does not decide about the pods",
			message: `Internal error occurred: failed calling webhook "a.b": connection refused`, waited: time.Hour,
			lasted: time.Hour},
		"deletion": {reason: "pods that cannot be deleted exist", message: security, kind: "FailedDelete",
			waited: time.Hour, lasted: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "alice", Name: "s1"}}
			require.NoError(t, serving.CheckPodsAllowed(d, tc.waited, time.Hour, now),
				"a Deployment without the condition")
			if tc.kind == "" {
				tc.kind = "FailedCreate"
			}
			if tc.deadline == 0 {
				tc.deadline = 10 * time.Minute
			}
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing,
				Status: corev1.ConditionTrue, Message: security},
				{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: tc.kind,
					Message: tc.message, LastTransitionTime: metav1.NewTime(now.Add(-tc.lasted))}}
			err := serving.CheckPodsAllowed(d, tc.waited, tc.deadline, now)
			if !tc.refused {
				require.NoError(t, err, tc.reason)
				return
			}
			require.True(t, failure.Is(err, failure.Refused), tc.reason)
			require.ErrorContains(t, err, "namespace alice does not allow the pods of Deployment s1: "+tc.message,
				tc.reason)
		})
	}
}
