package serving

import (
	"cmp"
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
	"slipway.io/slipway/release/workloadops"
)

// Annotations of ours on what a party runs.
const (
	// AnnotationContent is the digest of what an object was last told to be: the same content is not written again.
	AnnotationContent = "slipway.io/serving-content"
	// AnnotationApplied is the digest of the fields that Slipway owned right after it applied them: another digest means that somebody
	// changed one.
	AnnotationApplied = "slipway.io/serving-applied"
	// AnnotationToken is the fencing token of the step that wrote an object last: a step with an earlier token leaves it alone.
	AnnotationToken = "slipway.io/serving-token"
	// AnnotationVersion of a Deployment is the digest of the version that it is of.
	AnnotationVersion = "slipway.io/serving-version"
	// AnnotationObjects of a Deployment names what belongs to it, so that whoever watches sees what is missing: "Service/a,ConfigMap/b".
	AnnotationObjects = "slipway.io/serving-objects"
	// AnnotationEngine of a Deployment is the engine whose worker wrote it.
	AnnotationEngine = "slipway.io/serving-engine"
	// AnnotationReplicas of a Deployment is the size that the serving last asked for: while that stays, the size belongs to whoever changed
	// it.
	AnnotationReplicas = "slipway.io/serving-replicas"
)

// Mark writes onto a party's objects which version they are of, and onto the Deployment its claim and what belongs to it.
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
		workloadops.AnnotationClaimedBy: req.Claim,
	})
	if size := d.Spec.Replicas; size != nil {
		d.Annotations[AnnotationReplicas] = strconv.Itoa(int(*size))
	}
	d.Labels[workloadops.LabelClaimed] = workloadops.LabelClaimedServing
}

// stamp notes the digest of an object's content, its labels and annotations with it, and the fencing token.
func stamp(meta *metav1.ObjectMeta, content any, token string) {
	raw, _ := json.Marshal([]any{meta.Labels, meta.Annotations, content}) // it can be: these are Kubernetes' own types
	meta.Annotations[AnnotationContent], meta.Annotations[AnnotationToken] = shortDigest(raw), token
}

// Owner is how an object that is already there stands to a serving.
type Owner string

// The owners.
const (
	OwnerSame    Owner = "same"
	OwnerFormer  Owner = "former"
	OwnerForeign Owner = "foreign"
)

// OwnerOf says whose an object is: this serving's, that of a former serving of the same name, which is being removed, or somebody else's.
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

// MayTake says whether an operation may write on a Deployment with this claim: older operations on the same serving have given way. Those of
// another engine, which has a serving of the same name, have not.
func MayTake(claim string, req PartyRequest) bool {
	holder, id, generation := workloadops.ParseHolder(claim), req.ID, req.Generation
	switch {
	case holder.WorkflowID == "":
		return true
	case workloadops.IsForeign(req.Claim, claim):
		return false
	}
	rest, ours := strings.CutPrefix(holder.WorkflowID, WorkflowPrefix(id))
	rest, _, _ = strings.Cut(rest, "-") // what follows tells servings of one name apart
	n, err := strconv.ParseInt(rest, 10, 64)
	return ours && err == nil && n <= generation
}

// FencingToken orders all writes of one serving: an attempt that was frozen and wakes up later learns from it that it is over.
type FencingToken struct {
	// Generation is the operation's, Started when that began, in Unix milliseconds of Temporal's clock. A generation may have several
	// operations.
	Generation, Started int64
	// Back is 1 for the way back, which comes after the step forward of the same operation.
	Back int
}

// Token is the fencing token of the step.
func (r PartyRequest) Token() FencingToken {
	t := FencingToken{Generation: r.Generation, Started: r.Started}
	if r.Source.Previous {
		t.Back = 1
	}
	return t
}

// String is the token as AnnotationToken has it.
func (t FencingToken) String() string {
	return fmt.Sprintf("%d.%d.%d", t.Generation, t.Started, t.Back)
}

// TokenOf is the fencing token with which an object was written last; the zero token, which is before all others, when it has none.
func TokenOf(object metav1.Object) FencingToken {
	var t FencingToken
	if _, err := fmt.Sscanf(object.GetAnnotations()[AnnotationToken], "%d.%d.%d", &t.Generation, &t.Started, &t.Back); err != nil {
		return FencingToken{}
	}
	return t
}

// After says that a token is later than another one.
func (t FencingToken) After(other FencingToken) bool {
	return cmp.Or(cmp.Compare(t.Generation, other.Generation), cmp.Compare(t.Started, other.Started), cmp.Compare(t.Back, other.Back)) > 0
}

// Deployed is how a Deployment stands to a version.
type Deployed string

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
	if !Settled(d) {
		return DeployedComing, "its controller has not looked at the change yet"
	}
	asked, st := askedReplicas(d), d.Status
	text := fmt.Sprintf("%d of %d pods are new; of all %d pods %d are available", st.UpdatedReplicas, asked, st.Replicas, st.AvailableReplicas)
	for _, c := range st.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			// It is no verdict: the serving's policy has the deadline, and Kubernetes keeps saying so for a moment after a way back has begun.
			text += ": " + c.Message
		}
	}
	if c := CreationFailure(d); c != nil {
		text += ": its pods cannot be created: " + c.Message
	}
	if st.UpdatedReplicas == asked && st.AvailableReplicas == asked && st.Replicas == asked {
		return DeployedWhole, fmt.Sprintf("all %d pods run it", asked)
	}
	return DeployedComing, text
}

func askedReplicas(d *appsv1.Deployment) int32 { return ptr.Deref(d.Spec.Replicas, 1) }

// Settled says that the numbers of a Deployment's status are of what it is asked now.
func Settled(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration >= d.Generation }

// ObjectsOf names what belongs to a Deployment, in the order in which it was written.
func ObjectsOf(d metav1.Object) []string {
	return strings.FieldsFunc(d.GetAnnotations()[AnnotationObjects], func(r rune) bool { return r == ',' })
}
