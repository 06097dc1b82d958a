package serving_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/serving"
)

// deployment returns a Deployment of version v with these numbers of pods: requested, existing, updated, available.
func deployment(asked, all, updated, available int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "s1", Generation: 3,
			Annotations: map[string]string{serving.AnnotationVersion: "v"}},
		Spec: appsv1.DeploymentSpec{Replicas: &asked},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: all, UpdatedReplicas: updated,
			AvailableReplicas:   available,
			UnavailableReplicas: max(0, all-available)},
	}
}

func alter(d *appsv1.Deployment, change func(d *appsv1.Deployment)) *appsv1.Deployment {
	change(d)
	return d
}

func condition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus,
	message string) func(d *appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Status.Conditions = append(d.Status.Conditions,
			appsv1.DeploymentCondition{Type: kind, Status: status, Message: message})
	}
}

func TestDeployStateOf(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		d        *appsv1.Deployment
		expected serving.DeployState
		says     string
	}{
		"absent": {"a missing Deployment runs nothing", nil, serving.DeployStateOther, "it does not exist"},
		"other version": {"a complete Deployment of another version does not count",
			alter(deployment(1, 1, 1, 1), func(d *appsv1.Deployment) {
				d.Annotations[serving.AnnotationVersion] = "w"
			}), serving.DeployStateOther, "it runs another version"},
		"no version": {"a Deployment of another client has no version",
			alter(deployment(1, 1, 1, 1), func(d *appsv1.Deployment) {
				d.Annotations = nil
			}), serving.DeployStateOther, "it runs another version"},
		"not looked at": {"the status from before a change does not count",
			alter(deployment(2, 2, 2, 2), func(d *appsv1.Deployment) {
				d.Generation = 4
			}), serving.DeployStateProgressing, "its controller has not observed the change yet"},
		"whole": {"all pods are updated and available", deployment(2, 2, 2, 2), serving.DeployStateComplete,
			"all 2 pods run the version"},
		"none requested": {"no pods requested, and none exist", deployment(0, 0, 0, 0), serving.DeployStateComplete,
			"all 0 pods run the version"},
		"none requested yet": {"superfluous pods still exist", deployment(0, 1, 0, 1), serving.DeployStateProgressing,
			"0 of 0 pods are updated; 1 of 1 existing pods are available"},
		"by default one": {"replicas defaults to 1", alter(deployment(0, 1, 1, 1), func(d *appsv1.Deployment) {
			d.Spec.Replicas = nil
		}), serving.DeployStateComplete, "all 1 pods run the version"},
		"surging": {"a new pod is unavailable and an old one available: as many available as requested, but not " +
			"complete", deployment(1, 2, 1, 1), serving.DeployStateProgressing,
			"1 of 1 pods are updated; 1 of 2 existing pods are available"},
		"old left": {"the new pods serve, but an old one still exists", deployment(2, 3, 2, 3),
			serving.DeployStateProgressing, "2 of 2 pods are updated; 3 of 3 existing pods are available"},
		"unavailable": {"a new pod is not available yet", deployment(2, 2, 2, 1), serving.DeployStateProgressing,
			"2 of 2 pods are updated; 1 of 2 existing pods are available"},
		"not made": {"the reason why pods cannot be created is included",
			alter(deployment(2, 0, 0, 0), condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue,
				"exceeded quota")), serving.DeployStateProgressing,
			"0 of 2 pods are updated; 0 of 0 existing pods are available: its pods cannot be created: exceeded quota"},
		"deadline exceeded": {"only informative: the deadline is that of the policy, and the condition remains for a " +
			"moment after a rollback has begun", alter(deployment(1, 2, 1, 1),
			condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "timed out")),
			serving.DeployStateProgressing,
			"1 of 1 pods are updated; 1 of 2 existing pods are available: timed out"},
		"deadline exceeded, and complete": {"a complete Deployment is complete after its deadline, too",
			alter(deployment(1, 1, 1, 1), condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "timed out")),
			serving.DeployStateComplete, "all 1 pods run the version"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state, why := serving.DeployStateOf(tc.d, "v")
			require.Equal(t, tc.expected, state, tc.reason)
			require.Equal(t, tc.says, why, tc.reason)
		})
	}
}

func TestNewDeploymentSnapshot(t *testing.T) {
	t.Parallel()
	d := alter(deployment(2, 3, 1, 2), condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "m"))
	d.UID, d.ResourceVersion = "u7", "77"
	seen := serving.NewDeploymentSnapshot(d, []string{"Service/a"}, nil)
	require.Equal(t, serving.DeploymentSnapshot{ObservedDeployment: serving.ObservedDeployment{DeploymentUID: "u7",
		ResourceVersion: "77", CreatedAt: d.CreationTimestamp.UTC(), Replicas: 2}, UpdatedReplicas: 1,
		AvailableReplicas:   2,
		UnavailableReplicas: 1, Version: "v", Missing: []string{"Service/a"},
		Conditions: []serving.ConditionSnapshot{{Type: "Available", Status: "True", Message: "m",
			UpdatedAt: time.Time{}, ChangedAt: time.Time{}}}}, seen)
	require.True(t, serving.StatusIsCurrent(d))
	d.Generation = 9
	require.False(t, serving.StatusIsCurrent(d), "the status is from before the change")
}

func TestObjectsOf(t *testing.T) {
	t.Parallel()
	d := deployment(1, 1, 1, 1)
	require.Empty(t, serving.ObjectsOf(d), "nothing belongs to a Deployment that names nothing")
	d.Annotations[serving.AnnotationObjects] = "Service/a,ConfigMap/b"
	require.Equal(t, []string{"Service/a", "ConfigMap/b"}, serving.ObjectsOf(d))
}
