package author

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/phrase"
)

// Check is a policy, with its binding, or a webhook by which the API server checks authors of a cluster.
type Check struct {
	// Since is when it was created: the younger of policy and binding.
	Since time.Time
	// Token identifies these objects. It can't be known before they exist.
	Token string
	// Namespaces are the namespaces that it applies to; nil: all.
	Namespaces *metav1.LabelSelector
}

// Object is what the API server writes about a Rollout or a TrafficRouting, and clients can't change.
type Object struct {
	// Resource is the resource as kubectl takes it: ResourceRollouts or ResourceTrafficRoutings.
	Resource, Namespace, Name string
	Created                   time.Time
	// Mark is the value of AnnotationChecked.
	Mark string
	// Shown is the warning about its authors that its status shows; "" for none.
	Shown string
}

// The resources of what has an author.
const (
	ResourceRollouts        = "rollouts.rollouts.kruise.io"
	ResourceTrafficRoutings = "trafficroutings.rollouts.kruise.io"
)

// Token returns the token of the objects with these UIDs.
func Token(uids ...types.UID) string {
	return digest.Of(phrase.Each(uids, func(uid types.UID) string { return string(uid) })...)[:12]
}

// settling is how long API servers may take to apply a new policy.
const settling = 5 * time.Second

// Unchecked returns why nothing proves that the authors of an object were allowed to change what it refers to, and what
// to do about that; "" if it is proved. It is proved for an object that was created under a check, since each later
// edit has passed it too, and for one that carries the token of a check: then all references were checked when the
// token was set.
func Unchecked(o Object, checks []Check, namespace map[string]string) string {
	var token string
	for _, c := range checks {
		if !c.appliesTo(namespace) {
			continue
		}
		if token = c.Token; o.Mark == token || !o.Created.Before(c.Since.Add(settling)) {
			return ""
		}
	}
	if token == "" {
		return "whether its authors may change the objects that it refers to isn't checked in this namespace: an " +
			"administrator has to install the guard (slipway guard install)"
	}
	return fmt.Sprintf("it is older than the check whether its authors may change the objects that it refers to: let "+
		"a user who may patch them annotate it (kubectl -n %s annotate %s %s %s=%s --overwrite), or create it again",
		o.Namespace, o.Resource, o.Name, AnnotationChecked, token)
}

func (c Check) appliesTo(namespace map[string]string) bool {
	if c.Namespaces == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(c.Namespaces)
	return err == nil && selector.Matches(labels.Set(namespace))
}

// Refusal returns why a release of an unchecked object does not begin, where that is required.
func Refusal(unchecked string) string {
	return unchecked + "; releases of such objects don't begin, because the engine's workers run with --require-gate"
}
