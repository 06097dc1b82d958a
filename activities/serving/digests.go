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

// maxDigests is the maximum number of cached digests: enough for a burst of a thousand servings of a party, in less
// than 1 MiB.
const maxDigests = 4096

// digests caches the digests of objects (appliedDigest), whose computation is the most expensive operation on them. The
// same object is seen several times: in the response of a write, in the watch, and again with each change of a
// Deployment's status. It is safe for concurrent use.
type digests struct{ known *lru.Cache }

func newDigests() *digests { return &digests{known: lru.New(maxDigests)} }

// knownDigest is the cached digest of an object.
type knownDigest struct {
	digest string
	// state determines whether the digest is still valid (stateOf).
	state [sha256.Size]byte
}

// of returns the digest of the fields of an object that Slipway owns.
func (d *digests) of(is object) (string, error) {
	state, err := stateOf(is)
	if err != nil {
		return "", err
	}
	key := is.GetUID()
	found, _ := d.known.Get(key)
	if last, met := found.(knownDigest); met && last.state == state {
		return last.digest, nil
	}
	digest, err := appliedDigest(is)
	if err == nil && key != "" {
		d.known.Add(key, knownDigest{digest: digest, state: state})
	}
	return digest, err
}

// stateOf returns a value that changes whenever a field that Slipway owns, or the set of these fields, changes. The
// spec of a Deployment is represented by its generation, which a change of the status does not increase
// (https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/registry/apps/deployment/strategy.go); of other kinds, any
// change counts.
func stateOf(is object) (state [sha256.Size]byte, err error) {
	owned := serving.OwnedFields(is)
	meta := metav1.ObjectMeta{Generation: is.GetGeneration(), Labels: ownedEntries(owned, is.GetLabels()),
		Annotations:     ownedEntries(owned, is.GetAnnotations()),
		OwnerReferences: is.GetOwnerReferences(), Finalizers: is.GetFinalizers()}
	if _, counts := is.(*appsv1.Deployment); !counts || meta.Generation == 0 {
		meta.ResourceVersion = is.GetResourceVersion()
	}
	raw, err := json.Marshal(meta)
	return sha256.Sum256(append(raw, owned...)), err
}

// ownedEntries returns the entries of a map whose keys are among the owned fields. There may be others: a Deployment's
// own controller, for example, records a revision.
func ownedEntries(owned []byte, entries map[string]string) map[string]string {
	found := make(map[string]string, len(entries))
	for key, value := range entries {
		if bytes.Contains(owned, []byte(`"f:`+key+`"`)) {
			found[key] = value
		}
	}
	return found
}

// intact reports whether no other client has changed a field of an object that Slipway owns.
func (d *digests) intact(is object) (bool, error) {
	digest, err := d.of(is)
	return err == nil && digest == is.GetAnnotations()[serving.AnnotationApplied], err
}

// drift returns the changes by other clients to an object; nil if there are none. An object that cannot be evaluated
// counts as unchanged.
func (d *digests) drift(is object) []kuscia.Drift {
	if intact, err := d.intact(is); err != nil || intact {
		return nil
	}
	return serving.DriftOf(kindOf(is), is)
}
