package serving

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/workloadops"
)

// AnnotationContent is the digest of what an object was last told to be: the same content is not written again.
const AnnotationContent = "slipway.io/serving-content"

// AnnotationEngine of a Deployment is the engine whose worker wrote it.
const AnnotationEngine = "slipway.io/serving-engine"

// Mark writes onto a party's objects which version they are of, and onto the Deployment whose operation works on it and what belongs to it.
func Mark(o Objects, req PartyRequest, engine string) {
	var belongs []string
	for _, s := range o.Services {
		belongs = append(belongs, "Service/"+s.Name)
		stamp(&s.ObjectMeta, s.Spec)
		set(&s.ObjectMeta, AnnotationToken, req.Token().String())
		seal(&s.ObjectMeta, s)
	}
	if o.ConfigMap != nil {
		belongs = append(belongs, "ConfigMap/"+o.ConfigMap.Name)
		stamp(&o.ConfigMap.ObjectMeta, o.ConfigMap.Data)
		set(&o.ConfigMap.ObjectMeta, AnnotationToken, req.Token().String())
		seal(&o.ConfigMap.ObjectMeta, o.ConfigMap)
	}
	stamp(&o.Deployment.ObjectMeta, o.Deployment.Spec)
	if size := o.Deployment.Spec.Replicas; size != nil {
		set(&o.Deployment.ObjectMeta, AnnotationReplicas, strconv.Itoa(int(*size)))
	}
	set(&o.Deployment.ObjectMeta, AnnotationVersion, req.Version)
	set(&o.Deployment.ObjectMeta, AnnotationEngine, engine)
	set(&o.Deployment.ObjectMeta, AnnotationToken, req.Token().String())
	set(&o.Deployment.ObjectMeta, AnnotationObjects, strings.Join(belongs, ","))
	set(&o.Deployment.ObjectMeta, workloadops.AnnotationClaimedBy, req.Claim)
	o.Deployment.Labels[workloadops.LabelClaimed] = workloadops.LabelClaimedValue
	seal(&o.Deployment.ObjectMeta, o.Deployment)
}

// seal notes the digest of the whole object, as far as it is Slipway's.
func seal(meta *metav1.ObjectMeta, object any) {
	if digest, err := AppliedDigest(object); err == nil { // it can be: these are Kubernetes' own types
		set(meta, AnnotationApplied, digest)
	}
}

// stamp notes the digest of an object's content, its labels and annotations with it.
func stamp(meta *metav1.ObjectMeta, content any) {
	raw, err := json.Marshal([]any{meta.Labels, meta.Annotations, content})
	if err != nil {
		return // it cannot be: these are Kubernetes' own types
	}
	sum := sha256.Sum256(raw)
	set(meta, AnnotationContent, hex.EncodeToString(sum[:8]))
}

func set(meta *metav1.ObjectMeta, key, value string) {
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[key] = value
}

// Owner is how an object that is already there stands to a serving.
type Owner string

// How an object stands to a serving.
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

// MayTake says whether an operation may write on a Deployment that carries this claim: an older operation on the same serving has given way, and a newer
// one has not.
func MayTake(claim, id string, generation int64) bool {
	holder := workloadops.ParseHolder(claim)
	if holder.WorkflowID == "" {
		return true
	}
	rest, ours := strings.CutPrefix(holder.WorkflowID, WorkflowPrefix(id))
	rest, _, _ = strings.Cut(rest, "-") // what follows tells servings of one name apart
	n, err := strconv.ParseInt(rest, 10, 64)
	return ours && err == nil && n <= generation
}
