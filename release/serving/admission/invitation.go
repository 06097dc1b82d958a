// Package admission decides which servings a party takes. The party's own worker asks it right before it writes, since a party does not
// rely on what the centre has checked.
package admission

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

// LabelServings of a namespace invites servings when its value is ServingsAllowed.
const (
	LabelServings   = "slipway.io/servings"
	ServingsAllowed = "allowed"
)

// NeedsInvitation says whether the step needs an invitation. is is the Deployment of that name as it stands, nil when there is none. A
// serving that runs in the namespace was invited: its version is restored, and an update of it is undone, whether or not the label is still
// there. Whoever withdraws an invitation must not be left with half an update.
func NeedsInvitation(is *appsv1.Deployment, step serving.PartyRequest) bool {
	if is == nil || serving.OwnerOf(is, step.ID, step.UID) != serving.OwnerSame {
		return true
	}
	return !step.Source.Previous && is.Annotations[serving.AnnotationVersion] != step.Version
}

// CheckInvitation refuses a serving in a namespace that does not invite servings.
func CheckInvitation(namespace *corev1.Namespace) error {
	value, labelled := namespace.Labels[LabelServings]
	if value == ServingsAllowed {
		return nil
	}
	lacks, overwrite := "it has no label "+LabelServings+"="+ServingsAllowed, ""
	if labelled {
		lacks, overwrite = fmt.Sprintf("its label %s is %q, not %q", LabelServings, value, ServingsAllowed), " --overwrite"
	}
	return failure.New(failure.Refused, "namespace %[1]s does not take servings: %[2]s. To invite servings, run "+
		"`kubectl label namespace %[1]s %[3]s=%[4]s%[5]s`, then send the serving again", namespace.Name, lacks, LabelServings, ServingsAllowed,
		overwrite)
}
