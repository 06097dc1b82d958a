package serving

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of ours on what a party runs.
const (
	// AnnotationVersion is the digest of the version that an object is of.
	AnnotationVersion = "slipway.io/serving-version"
	// AnnotationObjects of a Deployment names what belongs to it, so that whoever watches sees what is missing: "Service/a,ConfigMap/b".
	AnnotationObjects = "slipway.io/serving-objects"
)

// Deployed is how a Deployment stands to a version.
type Deployed string

// How a Deployment stands to a version.
const (
	// DeployedNot: it runs another version, or does not exist.
	DeployedNot Deployed = "not"
	// DeployedComing: its pods are being replaced.
	DeployedComing Deployed = "coming"
	// DeployedWhole: it runs the version with all its pods, and nothing else.
	DeployedWhole Deployed = "whole"
)

// Judge says how a Deployment stands to a version, and why in a sentence. nil is a Deployment that does not exist.
func Judge(d *appsv1.Deployment, version string) (Deployed, string) {
	if d == nil {
		return DeployedNot, "it does not exist"
	}
	if d.Annotations[AnnotationVersion] != version {
		return DeployedNot, "it is of another version"
	}
	if d.Status.ObservedGeneration < d.Generation {
		return DeployedComing, "its controller has not looked at the change yet"
	}
	asked := askedReplicas(d)
	st := d.Status
	text := fmt.Sprintf("%d of %d pods are new; of all %d pods %d are available", st.UpdatedReplicas, asked, st.Replicas, st.AvailableReplicas)
	for _, c := range st.Conditions {
		switch {
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse:
			// It is no verdict: the serving's policy has the deadline, and Kubernetes keeps saying so for a moment after a way back has begun.
			text += ": " + c.Message
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			text += ": its pods cannot be created: " + c.Message
		}
	}
	if st.UpdatedReplicas == asked && st.AvailableReplicas == asked && st.Replicas == asked {
		return DeployedWhole, fmt.Sprintf("all %d pods run it", asked)
	}
	return DeployedComing, text
}

// askedReplicas is how many pods a Deployment is to have.
func askedReplicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// Settled says that the numbers of a Deployment's status are of what it is asked now.
func Settled(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration >= d.Generation }

// ObjectsOf names what belongs to a Deployment, in the order in which it was written.
func ObjectsOf(d metav1.Object) []string {
	text := d.GetAnnotations()[AnnotationObjects]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
