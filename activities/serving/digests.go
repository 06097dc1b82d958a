package serving

import (
	"crypto/sha256"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// mostDigests is how many objects' digests are remembered: those of a burst of a thousand servings of a party, in about 2 MiB.
const mostDigests = 4096

// digests are those of what is Slipway's of objects (appliedDigest), which take longer than anything else that is done to them. An object is met several times:
// a write answers it, the watch tells of it, and tells of a Deployment again each time its status changes. It is safe for concurrent use.
type digests struct{ known *lru.Cache }

func newDigests() *digests { return &digests{known: lru.New(mostDigests)} }

// knownDigest is the digest of an object as it was met last.
type knownDigest struct {
	digest string
	// generation counts the changes of a Deployment's spec and annotations, but not of its status
	// (https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/registry/apps/deployment/strategy.go). Of others version counts all changes.
	generation int64
	version    string
	// meta is what else of it can be Slipway's, and owned which of all fields are.
	meta  metav1.ObjectMeta
	owned [sha256.Size]byte
}

// of is the digest of what is Slipway's of an object.
func (d *digests) of(is object) (string, error) {
	now := knownDigest{generation: is.GetGeneration(), owned: sha256.Sum256(serving.OwnedFields(is)),
		meta: metav1.ObjectMeta{Labels: is.GetLabels(), OwnerReferences: is.GetOwnerReferences(), Finalizers: is.GetFinalizers()}}
	if _, counts := is.(*appsv1.Deployment); !counts || now.generation == 0 {
		now.version = is.GetResourceVersion()
	}
	key := is.GetUID()
	if last, met := d.last(key); met && last.covers(now) {
		return last.digest, nil
	}
	var err error
	if now.digest, err = appliedDigest(is); err == nil && key != "" {
		d.known.Add(key, now)
	}
	return now.digest, err
}

func (d *digests) last(key types.UID) (knownDigest, bool) {
	found, _ := d.known.Get(key)
	last, met := found.(knownDigest)
	return last, met
}

// covers says that nothing that can be Slipway's is another now.
func (k knownDigest) covers(now knownDigest) bool {
	return k.generation == now.generation && k.version == now.version && k.owned == now.owned && equality.Semantic.DeepEqual(k.meta, now.meta)
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
