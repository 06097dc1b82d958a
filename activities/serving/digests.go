package serving

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// mostDigests is how many objects' digests are remembered: those of a burst of a thousand servings of a party, in less than 1 MiB.
const mostDigests = 4096

// digests are those of what is Slipway's of objects (appliedDigest), which take longer than anything else that is done to them. An object is met several times:
// a write answers it, the watch tells of it, and tells of a Deployment again each time its status changes. It is safe for concurrent use.
type digests struct{ known *lru.Cache }

func newDigests() *digests { return &digests{known: lru.New(mostDigests)} }

// knownDigest is the digest of an object as it was met last.
type knownDigest struct {
	digest string
	// of is the digest of what tells whether it holds still (stateOf).
	of [sha256.Size]byte
}

// of is the digest of what is Slipway's of an object.
func (d *digests) of(is object) (string, error) {
	state, err := stateOf(is)
	if err != nil {
		return "", err
	}
	key := is.GetUID()
	found, _ := d.known.Get(key)
	if last, met := found.(knownDigest); met && last.of == state {
		return last.digest, nil
	}
	digest, err := appliedDigest(is)
	if err == nil && key != "" {
		d.known.Add(key, knownDigest{digest: digest, of: state})
	}
	return digest, err
}

// stateOf is another one whenever something changes that is Slipway's of an object, or which of its fields are. A Deployment's spec is told by its generation,
// which no status changes (https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/registry/apps/deployment/strategy.go); of others any change counts.
func stateOf(is object) (state [sha256.Size]byte, err error) {
	owned := serving.OwnedFields(is)
	meta := metav1.ObjectMeta{Generation: is.GetGeneration(), Labels: among(owned, is.GetLabels()), Annotations: among(owned, is.GetAnnotations()),
		OwnerReferences: is.GetOwnerReferences(), Finalizers: is.GetFinalizers()}
	if _, counts := is.(*appsv1.Deployment); !counts || meta.Generation == 0 {
		meta.ResourceVersion = is.GetResourceVersion()
	}
	raw, err := json.Marshal(meta)
	return sha256.Sum256(append(raw, owned...)), err
}

// among are the entries of a map whose keys are among the owned fields. Others may stand beside them: a Deployment's own controller notes a revision, for one.
func among(owned []byte, entries map[string]string) map[string]string {
	found := make(map[string]string, len(entries))
	for key, value := range entries {
		if bytes.Contains(owned, []byte(`"f:`+key+`"`)) {
			found[key] = value
		}
	}
	return found
}

// intact says that nobody has changed what is Slipway's of an object.
func (d *digests) intact(is object) (bool, error) {
	digest, err := d.of(is)
	return err == nil && digest == is.GetAnnotations()[serving.AnnotationApplied], err
}

// drift is what others have changed of an object; nil when nothing. What cannot be read is taken for unchanged.
func (d *digests) drift(is object) []kuscia.Drift {
	if intact, err := d.intact(is); err != nil || intact {
		return nil
	}
	return serving.DriftOf(kindOf(is), is)
}
