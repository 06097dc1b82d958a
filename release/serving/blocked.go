package serving

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workload"
)

// CreationFailure returns the condition by which the controllers of a Deployment report that they cannot create pods;
// nil if there is none.
func CreationFailure(d *appsv1.Deployment) *appsv1.DeploymentCondition {
	i := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return nil
	}
	return &d.Status.Conditions[i]
}

// staleConditionGrace is how long a creation failure left by an earlier operation may remain: controllers retry when a
// new operation writes, and remove the condition once they succeed.
const staleConditionGrace = 10 * time.Second

// CheckPodsAllowed refuses a Deployment whose pods the namespace does not allow: the API server accepts the Deployment,
// but none of its pods. waited is the time that the step has already waited, out of deadline.
//
// A rule on pods does not change by itself and is refused after staleConditionGrace. A quota may become free, so the
// failure is tolerated as long as a stuck pod: half the deadline, at most operation.PatienceLimit.
func CheckPodsAllowed(d *appsv1.Deployment, waited, deadline time.Duration, now time.Time) error {
	c := CreationFailure(d)
	if c == nil || c.Reason != "FailedCreate" {
		return nil
	}
	patience := staleConditionGrace
	switch {
	case deniedByRule(c.Message):
	case strings.Contains(c.Message, "is forbidden"):
		patience = max(patience, min(deadline/2, workload.PatienceLimit))
	default: // the API server did not answer, or the failure is not a decision of the namespace
		return nil
	}
	if min(waited, now.Sub(c.LastTransitionTime.Time)) < patience {
		return nil
	}
	return failure.New(failure.Refused, "namespace %s does not allow the pods of Deployment %s: %s. Change the "+
		"AppImage, or the rules of the "+
		"namespace, then send the serving again", d.Namespace, d.Name, c.Message)
}

// deniedByRule reports whether a pod was denied because of its spec: by Pod Security, a webhook or a
// ValidatingAdmissionPolicy, recognised by the API server's message.
func deniedByRule(message string) bool {
	return slices.ContainsFunc([]string{"violates PodSecurity", "denied the request", "denied request"},
		func(words string) bool {
			return strings.Contains(message, words)
		})
}
