package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/lru"

	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workloadops"
)

// kind is where objects of one kind are found.
type kind struct {
	name string
	gvr  schema.GroupVersionResource
	// borrows is what a release may change of such an object.
	borrows traffic.Borrowable
}

// at is the place of an object of that kind.
func (k kind) at(namespace, name string) place {
	return place{k.name, k.borrows, kube.Ref{Resource: k.gvr, Namespace: namespace, Name: name}}
}

// place is one object: its kind, and where it is.
type place struct {
	kind    string
	borrows traffic.Borrowable
	kube.Ref
}

func (p place) String() string { return traffic.Describe(p.kind, p.Namespace, p.Name) }

// The kinds that every rollout with traffic has to do with.
var (
	services   = kind{"Service", corev1.SchemeGroupVersion.WithResource("services"), traffic.BorrowsSelector}
	configMaps = kind{name: "ConfigMap", gvr: corev1.SchemeGroupVersion.WithResource("configmaps")}
	ingresses  = kind{name: "Ingress", gvr: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}}
	httpRoutes = kind{"HTTPRoute", schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"},
		traffic.BorrowsRules}
)

// mostKinds is how many kinds are remembered.
const mostKinds = 1000

// kinds finds out how the cluster calls the objects of a kind, and remembers it.
type kinds struct {
	discovery discovery.DiscoveryInterface
	known     *lru.Cache
}

func newKinds(d discovery.DiscoveryInterface) *kinds {
	return &kinds{discovery: d, known: lru.New(mostKinds)}
}

// of is the kind of a custom object. It fails with failure.Refused when the cluster does not have it.
func (k *kinds) of(apiVersion, name string) (kind, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return kind{}, failure.New(failure.Refused, "apiVersion %s: %v", apiVersion, err)
	}
	gvk := gv.WithKind(name)
	if known, there := k.known.Get(gvk); there {
		return known.(kind), nil
	}
	list, err := k.discovery.ServerResourcesForGroupVersion(apiVersion)
	if apierrors.IsNotFound(err) {
		return kind{}, failure.New(failure.Refused, "the cluster has no %s: install its custom resource definition", apiVersion)
	}
	if err != nil {
		return kind{}, err
	}
	for _, r := range list.APIResources {
		if r.Kind == name && r.Namespaced && !strings.Contains(r.Name, "/") {
			found := kind{name: name, gvr: gv.WithResource(r.Name)}
			k.known.Add(gvk, found)
			return found, nil
		}
	}
	return kind{}, failure.New(failure.Refused, "the cluster has no kind %s in %s: install its custom resource definition", name, apiVersion)
}

// httpRouteVersions are the versions in which HTTPRoutes are used, the best first.
var httpRouteVersions = []string{"v1", "v1beta1"}

// httpRoutes is the kind HTTPRoute in the best version that the cluster serves. It fails with failure.Refused when it serves none.
func (k *kinds) httpRoutes() (kind, error) {
	var refused error
	for _, version := range httpRouteVersions {
		found, err := k.of(httpRoutes.gvr.Group+"/"+version, httpRoutes.name)
		var f *failure.Error
		switch {
		case err == nil:
			found.borrows = httpRoutes.borrows
			return found, nil
		case !errors.As(err, &f):
			return kind{}, err
		case refused == nil:
			refused = err
		}
	}
	return kind{}, refused
}

// get reads an object; nil when it is not there.
func (a *Activities) get(ctx context.Context, p place) (traffic.Object, error) {
	o, err := a.cluster.Get(ctx, p.Ref)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return contentOf(o, err)
}

func contentOf(o *unstructured.Unstructured, err error) (traffic.Object, error) {
	if err != nil {
		return nil, err
	}
	return o.Object, nil
}

// patch sends a JSON Patch; with dry the API server only says what would come of it.
func (a *Activities) patch(ctx context.Context, p place, ops []jsonpatch.Op, dry bool) (traffic.Object, error) {
	body, err := json.Marshal(ops)
	if err != nil {
		return nil, err
	}
	return contentOf(a.cluster.Patch(ctx, p.Ref, body, dry))
}

// write makes a write on an object that marks stay on. The API server is first asked what it would keep, defaults and webhooks included:
// the digest of that is noted on the object, and when it is what is there already nothing is written. It says whether something was.
func (a *Activities) write(ctx context.Context, p place, live traffic.Object, w *traffic.Write) (bool, error) {
	if err := a.repaired(p, live); err != nil {
		return false, err
	}
	kept, err := a.patch(ctx, p, w.Stamp(""), true)
	if kube.NoDryRun(err) {
		kept, err = jsonpatch.Apply(live, w.Changes), nil
	}
	if err != nil {
		return false, a.verdict(ctx, p, live, err)
	}
	digest := traffic.Digest(kept, w.Paths())
	if digest == traffic.Digest(live, w.Paths()) && sameMarks(live, kept) && meta(live).GetAnnotations()[rollout.AnnotationWritten] == digest {
		return false, nil
	}
	a.removed.Remove(meta(live).GetUID())
	return true, a.send(ctx, p, live, w.Stamp(digest))
}

// repaired is the failure of a write on an object that somebody has taken into their own hands.
func (a *Activities) repaired(p place, live traffic.Object) error {
	by := meta(live).GetAnnotations()[rollout.AnnotationRepair]
	if by == "" || a.options.Repairing {
		return nil
	}
	return rollout.Repaired(p.String(), by)
}

// send makes a write.
func (a *Activities) send(ctx context.Context, p place, live traffic.Object, ops []jsonpatch.Op) error {
	if err := a.repaired(p, live); err != nil {
		return err
	}
	failpoint.Hit("traffic." + p.Resource.Resource + ".patch.before")
	_, err := a.patch(ctx, p, ops, false)
	failpoint.Hit("traffic." + p.Resource.Resource + ".patch.after")
	if err != nil {
		return a.verdict(ctx, p, live, err)
	}
	a.options.Logger.InfoContext(ctx, "routing object changed", "object", p.String())
	return nil
}

// sendBack makes a write that leaves no mark.
func (a *Activities) sendBack(ctx context.Context, p place, live traffic.Object, w *traffic.Write) error {
	a.removed.Add(meta(live).GetUID(), true) // before its watch can tell of it
	err := a.send(ctx, p, live, w.Ops())
	if err != nil {
		a.removed.Remove(meta(live).GetUID())
	}
	return err
}

// create makes an object, with the digest of what the API server keeps of it.
func (a *Activities) create(ctx context.Context, p place, desired traffic.Object, paths []string) error {
	signed := traffic.Sign(desired, paths)
	kept, err := contentOf(a.cluster.Create(ctx, p.Ref, meta(signed), true))
	if kube.NoDryRun(err) {
		kept, err = signed, nil
	}
	if err != nil {
		return a.verdict(ctx, p, nil, err)
	}
	failpoint.Hit("traffic." + p.Resource.Resource + ".create.before")
	_, err = a.cluster.Create(ctx, p.Ref, meta(traffic.Stamped(signed, traffic.Digest(kept, paths))), false)
	failpoint.Hit("traffic." + p.Resource.Resource + ".create.after")
	if err != nil {
		return a.verdict(ctx, p, nil, err)
	}
	a.options.Logger.InfoContext(ctx, "routing object created", "object", p.String())
	return nil
}

// remove deletes exactly the object that was read.
func (a *Activities) remove(ctx context.Context, p place, live traffic.Object) error {
	if err := a.repaired(p, live); err != nil {
		return err
	}
	failpoint.Hit("traffic." + p.Resource.Resource + ".delete.before")
	a.removed.Add(meta(live).GetUID(), true) // before its watch can tell of it
	err := a.cluster.Delete(ctx, p.Ref, meta(live).GetUID(), "")
	failpoint.Hit("traffic." + p.Resource.Resource + ".delete.after")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return a.verdict(ctx, p, live, err)
	}
	a.options.Logger.InfoContext(ctx, "routing object deleted", "object", p.String())
	return nil
}

// verdict tells a write that came too late, which is decided anew, from one that the API server does not want.
func (a *Activities) verdict(ctx context.Context, p place, live traffic.Object, err error) error {
	switch classify(err) {
	case kube.Changed:
		if apierrors.IsNotFound(err) && live == nil {
			return failure.New(failure.Refused, "%s cannot be created: %s", p, kube.Text(err)) // its kind or its namespace is not there
		}
		return errLookAgain
	case kube.Refused:
		return failure.New(failure.Refused, "%s: its cluster does not accept the change: %s", p, kube.Text(err))
	case kube.Rejected:
		now, readErr := a.get(ctx, p)
		if readErr != nil {
			return readErr
		}
		if meta(now).GetResourceVersion() != meta(live).GetResourceVersion() {
			return errLookAgain
		}
		return failure.New(failure.Refused, "%s: its cluster does not accept the change: %s", p, kube.Text(err))
	default:
		return err
	}
}

// meta is the metadata of an object, empty of none.
func meta(o traffic.Object) *unstructured.Unstructured { return &unstructured.Unstructured{Object: o} }

func sameMarks(a, b traffic.Object) bool {
	for _, key := range []string{rollout.AnnotationHeldBy, rollout.AnnotationRestore, traffic.AnnotationPlaces} {
		if meta(a).GetAnnotations()[key] != meta(b).GetAnnotations()[key] {
			return false
		}
	}
	return meta(a).GetLabels()[workloadops.LabelClaimed] == meta(b).GetLabels()[workloadops.LabelClaimed]
}

// vanished is the drift of an object that was deleted by somebody else.
func vanished(p place) error {
	return failure.New(failure.Drift, "%s was deleted by somebody else: create it again as it was before retry", p)
}

// workload reads the workload of a rollout; nil when it does not exist (any more), or its kind does not.
func (a *Activities) workload(ctx context.Context, s rollout.Subject) (traffic.Object, error) {
	ref := s.Workload.WorkloadRef
	k, err := a.kinds.of(ref.APIVersion, ref.Kind)
	var f *failure.Error
	switch {
	case errors.As(err, &f):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return a.get(ctx, k.at(s.Workload.Namespace, ref.Name))
}

// classify is kube.Classify, but what is not there any more has changed, like all else that was decided on.
func classify(err error) kube.Class {
	if kind := kube.Classify(err); kind != kube.Missing {
		return kind
	}
	return kube.Changed
}

// errLookAgain says that somebody was faster: what was decided has to be decided anew.
var errLookAgain = errors.New("the object has changed in the meantime")
