package serving

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

// CreationFailure is what the controllers of a Deployment say about pods that they cannot create; nil when they say nothing.
func CreationFailure(d *appsv1.Deployment) *appsv1.DeploymentCondition {
	i := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return nil
	}
	return &d.Status.Conditions[i]
}

// staleFor is how long the word of an earlier operation's pods may stand: controllers try again when a new operation writes, and take their
// word back once they succeed.
const staleFor = 10 * time.Second

// CheckPodsAllowed refuses a Deployment whose pods the namespace does not allow: the API server takes the Deployment, and none of its pods.
// waited is how long the step has been waiting, of its deadline. A rule on the pods themselves does not change by itself. A quota may: as
// long as for a pod that is stuck is waited for that.
func CheckPodsAllowed(d *appsv1.Deployment, waited, deadline time.Duration, now time.Time) error {
	c := CreationFailure(d)
	if c == nil || c.Reason != "FailedCreate" {
		return nil
	}
	patience := staleFor
	switch {
	case deniedByRule(c.Message):
	case strings.Contains(c.Message, "is forbidden"):
		patience = max(patience, min(deadline/2, workloadops.PatienceLimit))
	default: // the API server did not answer, or it is no verdict of the namespace's
		return nil
	}
	if min(waited, now.Sub(c.LastTransitionTime.Time)) < patience {
		return nil
	}
	return failure.New(failure.Refused, "namespace %s does not allow the pods of Deployment %s: %s. Change the AppImage, or the rules of the "+
		"namespace, then send the serving again", d.Namespace, d.Name, c.Message)
}

// deniedByRule says whether a pod was denied for what it is: by Pod Security, a webhook or a ValidatingAdmissionPolicy, in the words of the
// API server.
func deniedByRule(message string) bool {
	return slices.ContainsFunc([]string{"violates PodSecurity", "denied the request", "denied request"}, func(words string) bool {
		return strings.Contains(message, words)
	})
}
