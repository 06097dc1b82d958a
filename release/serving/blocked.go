package serving

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workload"
)

// CreationFailure returns why the pods of a Deployment are not created, as its controller reports in a condition.
func CreationFailure(d *appsv1.Deployment) workload.CreationFailure {
	i := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue &&
			c.Reason != workload.ReasonFailedDelete || c.Type == appsv1.DeploymentProgressing &&
			c.Status == corev1.ConditionFalse && c.Reason == workload.ReasonNoReplicaSet
	})
	if i < 0 {
		return workload.CreationFailure{}
	}
	c := d.Status.Conditions[i]
	return workload.CreationFailure{Message: workload.CreationMessage(c.Message), Since: c.LastTransitionTime.Time}
}

// CheckPodsAllowed refuses a Deployment whose pods the namespace does not allow: the API server accepts the Deployment,
// but none of its pods. waited is the time that the step has waited, without any new pod, out of deadline. How long the
// failure is tolerated depends on its cause (workload.CreationCauses).
func CheckPodsAllowed(d *appsv1.Deployment, waited, deadline time.Duration, now time.Time) error {
	f := CreationFailure(d)
	left, ends := f.PatienceLeft(workload.Snapshot{Now: now, Elapsed: waited, StalledFor: waited}, deadline)
	if !ends || left > 0 {
		return nil
	}
	return failure.New(failure.Refused, "namespace %s does not allow the pods of Deployment %s: %s. Change the "+
		"AppImage, or the rules of the namespace, then send the serving again", d.Namespace, d.Name, f.Message)
}
