// Package admission decides which servings and builds a party accepts. The party's own worker applies it right before
// it writes, because a party does not rely on the checks of the centre.
package admission

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

// LabelServings of a namespace invites servings if its value is ServingsAllowed.
const (
	LabelServings   = "slipway.io/servings"
	ServingsAllowed = "allowed"
)

// NeedsInvitation reports whether a step needs the namespace's invitation. is is the current Deployment of that name,
// nil if there is none. A serving that runs in the namespace was invited: its version may be restored, and an update of
// it rolled back, even if the label was removed since. Otherwise withdrawing an invitation could leave half an update
// behind.
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
		lacks, overwrite = fmt.Sprintf("its label %s is %q, not %q", LabelServings, value, ServingsAllowed),
			" --overwrite"
	}
	return failure.New(failure.Refused, "namespace %[1]s does not take servings: %[2]s. To invite servings, run "+
		"`kubectl label namespace %[1]s %[3]s=%[4]s%[5]s`, then send the serving again", namespace.Name, lacks,
		LabelServings, ServingsAllowed,
		overwrite)
}
