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

// deployment is one of version v with these numbers of pods: asked, all, new, available.
func deployment(asked, all, updated, available int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "s1", Generation: 3, Annotations: map[string]string{serving.AnnotationVersion: "v"}},
		Spec:       appsv1.DeploymentSpec{Replicas: &asked},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: all, UpdatedReplicas: updated, AvailableReplicas: available,
			UnavailableReplicas: max(0, all-available)},
	}
}

func alter(d *appsv1.Deployment, change func(d *appsv1.Deployment)) *appsv1.Deployment {
	change(d)
	return d
}

func condition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, message string) func(d *appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: kind, Status: status, Message: message})
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		d        *appsv1.Deployment
		expected serving.Deployed
		says     string
	}{
		"gone":          {"what is not there runs nothing", nil, serving.DeployedNot, "it does not exist"},
		"other version": {"whole in another version is not what is asked", alter(deployment(1, 1, 1, 1), func(d *appsv1.Deployment) { d.Annotations[serving.AnnotationVersion] = "w" }), serving.DeployedNot, "it is of another version"},
		"no version":    {"somebody else's Deployment is of no version", alter(deployment(1, 1, 1, 1), func(d *appsv1.Deployment) { d.Annotations = nil }), serving.DeployedNot, "it is of another version"},
		"not looked at": {"numbers of before a change do not count for after it", alter(deployment(2, 2, 2, 2), func(d *appsv1.Deployment) { d.Generation = 4 }), serving.DeployedComing, "its controller has not looked at the change yet"},
		"whole":         {"all pods are new and available", deployment(2, 2, 2, 2), serving.DeployedWhole, "all 2 pods run it"},
		"none asked":    {"no pod asked, and none there", deployment(0, 0, 0, 0), serving.DeployedWhole, "all 0 pods run it"},
		"none asked yet": {"pods that are to go are still there", deployment(0, 1, 0, 1), serving.DeployedComing,
			"0 of 0 pods are new; of all 1 pods 1 are available"},
		"by default one": {"a Deployment that does not say how many asks for one", alter(deployment(0, 1, 1, 1), func(d *appsv1.Deployment) { d.Spec.Replicas = nil }), serving.DeployedWhole, "all 1 pods run it"},
		"surging": {"one new pod that is not available beside an old one that is: as many available as asked, and yet not whole", deployment(1, 2, 1, 1), serving.DeployedComing,
			"1 of 1 pods are new; of all 2 pods 1 are available"},
		"old left":    {"the new ones serve, and an old one is not gone yet", deployment(2, 3, 2, 3), serving.DeployedComing, "2 of 2 pods are new; of all 3 pods 3 are available"},
		"unavailable": {"a new pod is not available yet", deployment(2, 2, 2, 1), serving.DeployedComing, "2 of 2 pods are new; of all 2 pods 1 are available"},
		"not made": {"why pods cannot be made is said", alter(deployment(2, 0, 0, 0), condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "exceeded quota")), serving.DeployedComing,
			"0 of 2 pods are new; of all 0 pods 0 are available: its pods cannot be created: exceeded quota"},
		"given up": {"the deadline is the policy's: Kubernetes says so also for a moment after a way back has begun", alter(deployment(1, 2, 1, 1), condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "timed out")), serving.DeployedComing,
			"1 of 1 pods are new; of all 2 pods 1 are available: timed out"},
		"given up, and whole": {"what came after all has come", alter(deployment(1, 1, 1, 1), condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "timed out")), serving.DeployedWhole, "all 1 pods run it"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state, why := serving.Judge(tc.d, "v")
			require.Equal(t, tc.expected, state, tc.reason)
			require.Equal(t, tc.says, why, tc.reason)
		})
	}
}

func TestWhatIsTold(t *testing.T) {
	t.Parallel()
	d := alter(deployment(2, 3, 1, 2), condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "m"))
	d.UID, d.ResourceVersion = "u7", "77"
	seen := serving.See(d, []string{"Service/a"}, nil)
	require.Equal(t, serving.Seen{Look: serving.Look{DeploymentUID: "u7", ResourceVersion: "77", CreatedAt: d.CreationTimestamp.UTC(), Replicas: 2}, UpdatedReplicas: 1, AvailableReplicas: 2,
		UnavailableReplicas: 1, Version: "v", Missing: []string{"Service/a"},
		Conditions: []serving.SeenCondition{{Type: "Available", Status: "True", Message: "m", UpdatedAt: time.Time{}, ChangedAt: time.Time{}}}}, seen)
	require.True(t, serving.Settled(d))
	d.Generation = 9
	require.False(t, serving.Settled(d), "the numbers are of before the change")
}

func TestObjectsOf(t *testing.T) {
	t.Parallel()
	d := deployment(1, 1, 1, 1)
	require.Empty(t, serving.ObjectsOf(d), "nothing belongs to a Deployment that names nothing")
	d.Annotations[serving.AnnotationObjects] = "Service/a,ConfigMap/b"
	require.Equal(t, []string{"Service/a", "ConfigMap/b"}, serving.ObjectsOf(d))
}
