package serving

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/workload"
)

// Slipway's annotations on the objects of a party.
const (
	// AnnotationContent is the digest of the content that was last written to an object: the same content is not
	// written again.
	AnnotationContent = "slipway.io/serving-content"
	// AnnotationApplied is the digest of the fields that Slipway owned right after it applied them: if their current
	// digest differs, another client has changed one.
	AnnotationApplied = "slipway.io/serving-applied"
	// AnnotationToken is the fencing token of the step that last wrote an object: a step with an earlier token does not
	// touch it.
	AnnotationToken = "slipway.io/serving-token"
	// AnnotationVersion of a Deployment is the digest of the version that it was rendered from.
	AnnotationVersion = "slipway.io/serving-version"
	// AnnotationObjects of a Deployment lists the objects that belong to it, so that a watcher can detect missing ones:
	// "Service/a,ConfigMap/b".
	AnnotationObjects = "slipway.io/serving-objects"
	// AnnotationEngine of a Deployment is the engine whose worker wrote it.
	AnnotationEngine = "slipway.io/serving-engine"
	// AnnotationReplicas of a Deployment is the size that the serving last requested: while that is unchanged, Slipway
	// keeps a size set by another client.
	AnnotationReplicas = "slipway.io/serving-replicas"
)

// Mark sets the annotations and labels on a party's objects: content digest and fencing token on all of them; version,
// engine, claim, size and the list of objects on the Deployment.
func Mark(o Objects, req PartyRequest, engine string) {
	token := req.Token().String()
	var belongs []string
	for _, s := range o.Services {
		belongs = append(belongs, "Service/"+s.Name)
		stamp(&s.ObjectMeta, s.Spec, token)
	}
	if o.ConfigMap != nil {
		belongs = append(belongs, "ConfigMap/"+o.ConfigMap.Name)
		stamp(&o.ConfigMap.ObjectMeta, o.ConfigMap.Data, token)
	}
	d := o.Deployment
	stamp(&d.ObjectMeta, d.Spec, token)
	maps.Copy(d.Annotations, map[string]string{
		AnnotationVersion: req.Version, AnnotationEngine: engine, AnnotationObjects: strings.Join(belongs, ","),
		workload.AnnotationClaimedBy: req.Claim,
	})
	if size := d.Spec.Replicas; size != nil {
		d.Annotations[AnnotationReplicas] = strconv.Itoa(int(*size))
	}
	d.Labels[workload.LabelClaimed] = workload.LabelClaimedServing
}

// stamp records the digest of an object's content, including its labels and annotations, and the fencing token.
func stamp(meta *metav1.ObjectMeta, content any, token string) {
	// cannot fail: these are Kubernetes' own types
	raw, _ := json.Marshal([]any{meta.Labels, meta.Annotations, content})
	meta.Annotations[AnnotationContent], meta.Annotations[AnnotationToken] = shortDigest(raw), token
}

// Owner is the relation of an existing object to a serving.
type Owner string

// The owners: OwnerSame is this serving, OwnerFormer a deleted serving of the same name, whose objects are being
// removed, OwnerForeign anything else.
const (
	OwnerSame    Owner = "same"
	OwnerFormer  Owner = "former"
	OwnerForeign Owner = "foreign"
)

// OwnerOf returns the owner of an object with respect to the serving of that ID and UID.
func OwnerOf(object metav1.Object, id, uid string) Owner {
	labels := object.GetLabels()
	switch {
	case labels[kuscia.LabelController] != kuscia.ControllerName || labels[kuscia.LabelDeploymentName] != id:
		return OwnerForeign
	case labels[kuscia.LabelDeploymentUID] != uid:
		return OwnerFormer
	}
	return OwnerSame
}

// MayClaim reports whether an operation may write a Deployment with this claim: it may take over claims of older
// operations on the same serving, which have given way, but not those of another engine, which has a serving of the
// same name.
func MayClaim(claim string, req PartyRequest) bool {
	holder, id, generation := workload.ParseHolder(claim), req.ID, req.Generation
	switch {
	case holder.WorkflowID == "":
		return true
	case workload.IsForeign(req.Claim, claim):
		return false
	}
	rest, ours := strings.CutPrefix(holder.WorkflowID, WorkflowPrefix(id))
	rest, _, _ = strings.Cut(rest, "-") // the suffix distinguishes servings of the same name
	n, err := strconv.ParseInt(rest, 10, 64)
	return ours && err == nil && n <= generation
}

// DeployState is the state of a Deployment with respect to a version.
type DeployState string

const (
	// DeployStateOther: it runs another version, or does not exist.
	DeployStateOther DeployState = "not"
	// DeployStateProgressing: its pods are being replaced.
	DeployStateProgressing DeployState = "coming"
	// DeployStateComplete: all its pods run the version, and there are no others.
	DeployStateComplete DeployState = "whole"
)

// DeployStateOf returns the state of a Deployment with respect to a version, and its reason as text. A nil Deployment
// does not exist.
func DeployStateOf(d *appsv1.Deployment, version string) (DeployState, string) {
	if d == nil {
		return DeployStateOther, "it does not exist"
	}
	if d.Annotations[AnnotationVersion] != version {
		return DeployStateOther, "it runs another version"
	}
	if !StatusIsCurrent(d) {
		return DeployStateProgressing, "its controller has not observed the change yet"
	}
	desired, st := desiredReplicas(d), d.Status
	text := fmt.Sprintf("%d of %d pods are updated; %d of %d existing pods are available", st.UpdatedReplicas, desired,
		st.AvailableReplicas, st.Replicas)
	for _, c := range st.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse &&
			c.Reason != workload.ReasonNoReplicaSet {
			// Informative only: the deadline is that of the serving's policy, and the condition remains for a moment
			// after a rollback has begun.
			text += ": " + c.Message
		}
	}
	if f := CreationFailure(d); f.Reported() {
		text += ": " + f.String()
	}
	if st.UpdatedReplicas == desired && st.AvailableReplicas == desired && st.Replicas == desired {
		return DeployStateComplete, fmt.Sprintf("all %d pods run the version", desired)
	}
	return DeployStateProgressing, text
}

func desiredReplicas(d *appsv1.Deployment) int32 { return ptr.Deref(d.Spec.Replicas, 1) }

// StatusIsCurrent reports whether a Deployment's status reflects its current spec.
func StatusIsCurrent(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration >= d.Generation }

// ObjectsOf returns the names of the objects that belong to a Deployment, in the order in which they are written.
func ObjectsOf(d metav1.Object) []string {
	return strings.FieldsFunc(d.GetAnnotations()[AnnotationObjects], func(r rune) bool { return r == ',' })
}
