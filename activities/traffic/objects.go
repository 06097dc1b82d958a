package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

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
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workload"
)

// kind is a kind of object and its resource.
type kind struct {
	name string
	gvr  schema.GroupVersionResource
	// borrows is the part of such an object that a release may change.
	borrows traffic.Borrowable
}

// at returns the place of an object of this kind.
func (k kind) at(namespace, name string) place {
	return place{k.name, k.borrows, kube.Ref{Resource: k.gvr, Namespace: namespace, Name: name}}
}

// place identifies one object, with its kind.
type place struct {
	kind    string
	borrows traffic.Borrowable
	kube.Ref
}

func (p place) String() string { return traffic.Describe(p.kind, p.Namespace, p.Name) }

// The kinds that a rollout with traffic may use.
var (
	services   = kind{"Service", corev1.SchemeGroupVersion.WithResource("services"), traffic.BorrowsSelector}
	configMaps = kind{name: "ConfigMap", gvr: corev1.SchemeGroupVersion.WithResource("configmaps")}
	ingresses  = kind{name: "Ingress", gvr: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1",
		Resource: "ingresses"}}
	httpRoutes = kind{"HTTPRoute", schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1",
		Resource: "httproutes"}, traffic.BorrowsRules}
)

// maxKinds is how many kinds are cached.
const maxKinds = 1000

// kinds finds the resources of kinds in the cluster, and caches them.
type kinds struct {
	discovery discovery.DiscoveryInterface
	known     *lru.Cache
}

func newKinds(d discovery.DiscoveryInterface) *kinds {
	return &kinds{discovery: d, known: lru.New(maxKinds)}
}

// lookup returns the kind of a custom object. It fails with failure.Refused if the cluster does not have it.
func (k *kinds) lookup(apiVersion, name string) (kind, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return kind{}, failure.New(failure.Refused, "apiVersion %s: %v", apiVersion, err)
	}
	gvk := gv.WithKind(name)
	if known, found := k.known.Get(gvk); found {
		return known.(kind), nil
	}
	list, err := k.discovery.ServerResourcesForGroupVersion(apiVersion)
	if apierrors.IsNotFound(err) {
		return kind{}, failure.New(failure.Refused, "the cluster has no %s: install its custom resource definition",
			apiVersion)
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
	return kind{}, failure.New(failure.Refused, "the cluster has no kind %s in %s: install its custom resource "+
		"definition", name, apiVersion)
}

// httpRouteVersions are the supported versions of HTTPRoutes, the best first.
var httpRouteVersions = []string{"v1", "v1beta1"}

// httpRoutes returns the kind HTTPRoute in the best version that the cluster serves. It fails with failure.Refused if
// it serves none.
func (k *kinds) httpRoutes() (kind, error) {
	var refused error
	for _, version := range httpRouteVersions {
		found, err := k.lookup(httpRoutes.gvr.Group+"/"+version, httpRoutes.name)
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

// of returns the kinds of the objects of a routing. It fails with failure.Refused if the cluster lacks one.
func (k *kinds) of(r strategy.Routing) ([]kind, error) {
	switch {
	case r.Ingress != nil:
		return []kind{ingresses}, nil
	case r.HTTPRoute != "":
		found, err := k.httpRoutes()
		return []kind{found}, err
	}
	var out []kind
	for _, ref := range r.Custom {
		found, err := k.lookup(ref.APIVersion, ref.Kind)
		if err != nil {
			return nil, err
		}
		out = append(out, found)
	}
	return out, nil
}

// get reads an object; nil if it does not exist.
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

// patch sends a JSON Patch; with dry the API server returns the result without storing it.
func (a *Activities) patch(ctx context.Context, p place, ops []jsonpatch.Op, dry bool) (traffic.Object, error) {
	body, err := json.Marshal(ops)
	if err != nil {
		return nil, err
	}
	return contentOf(a.cluster.Patch(ctx, p.Ref, body, dry))
}

// write writes an object that keeps its marks. A dry run first shows what the API server would store, including
// defaults and webhooks. The digest of that is stored on the object, and nothing is written if the object already
// matches. It reports whether it wrote.
func (a *Activities) write(ctx context.Context, p place, live traffic.Object, w *traffic.Write) (bool, error) {
	if err := a.checkRepair(p, live); err != nil {
		return false, err
	}
	kept, err := a.patch(ctx, p, w.Stamp(""), true)
	if kube.NoDryRun(err) {
		kept, err = jsonpatch.Apply(live, w.Changes), nil
	}
	if err != nil {
		return false, a.classifyWriteError(ctx, p, live, err)
	}
	digest := traffic.Digest(kept, w.Paths())
	if digest == traffic.Digest(live, w.Paths()) && sameMarks(live, kept) &&
		meta(live).GetAnnotations()[rollout.AnnotationWritten] == digest {
		return false, nil
	}
	a.removed.Remove(meta(live).GetUID())
	return true, a.send(ctx, p, live, w.Stamp(digest))
}

// checkRepair returns an error if the user has taken over the object for a repair.
func (a *Activities) checkRepair(p place, live traffic.Object) error {
	by := meta(live).GetAnnotations()[rollout.AnnotationRepair]
	if by == "" || a.options.Repairing {
		return nil
	}
	return rollout.UnderRepair(p.String(), by)
}

// send writes a patch.
func (a *Activities) send(ctx context.Context, p place, live traffic.Object, ops []jsonpatch.Op) error {
	if err := a.checkRepair(p, live); err != nil {
		return err
	}
	return a.do(ctx, p, live, "patch", func() error {
		_, err := a.patch(ctx, p, ops, false)
		return err
	})
}

// do makes one write of an object: verb is its name in failpoints.
func (a *Activities) do(ctx context.Context, p place, live traffic.Object, verb string, write func() error) error {
	if err := a.requireListed(ctx, p); err != nil {
		return err
	}
	if err := failpoint.Around("traffic."+p.Resource.Resource+"."+verb, write); err != nil {
		return a.classifyWriteError(ctx, p, live, err)
	}
	done := map[string]string{"patch": "changed", "create": "created", "delete": "deleted"}[verb]
	a.options.Logger.InfoContext(ctx, "routing object "+done, "object", p.String())
	return nil
}

// guardAge is how long writes use what was read about the guard, labelsAge how long the labels of a namespace.
const guardAge, labelsAge = 15 * time.Second, time.Second

// requireListed refuses a write that the API server would undo.
func (a *Activities) requireListed(ctx context.Context, p place) error {
	if a.options.Repairing {
		return nil
	}
	reason, err := a.options.Protection.Unlisted(ctx, p.Namespace, guardAge, labelsAge)
	if reason != "" {
		return failure.New(failure.Refused, "%s: %s", p, reason)
	}
	return err
}

// sendRestore writes a patch that removes the marks.
func (a *Activities) sendRestore(ctx context.Context, p place, live traffic.Object, w *traffic.Write) error {
	a.removed.Add(meta(live).GetUID(), true) // before the watch delivers the change
	err := a.send(ctx, p, live, w.Ops())
	if err != nil {
		a.removed.Remove(meta(live).GetUID())
	}
	return err
}

// create creates an object, with the digest of what the API server stores.
func (a *Activities) create(ctx context.Context, p place, desired traffic.Object, paths []string) error {
	signed := traffic.AnnotatePlaces(desired, paths)
	kept, err := contentOf(a.cluster.Create(ctx, p.Ref, meta(signed), true))
	if kube.NoDryRun(err) {
		kept, err = signed, nil
	}
	if err != nil {
		return a.classifyWriteError(ctx, p, nil, err)
	}
	return a.do(ctx, p, nil, "create", func() error {
		_, err := a.cluster.Create(ctx, p.Ref, meta(traffic.Stamped(signed, traffic.Digest(kept, paths))), false)
		return err
	})
}

// remove deletes exactly the object that was read.
func (a *Activities) remove(ctx context.Context, p place, live traffic.Object) error {
	if err := a.checkRepair(p, live); err != nil {
		return err
	}
	return a.do(ctx, p, live, "delete", func() error {
		a.removed.Add(meta(live).GetUID(), true) // before the watch delivers the change
		err := a.cluster.Delete(ctx, p.Ref, meta(live).GetUID(), "")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// classifyWriteError distinguishes a conflict, after which the job decides again, from a write that the API server
// refuses.
func (a *Activities) classifyWriteError(ctx context.Context, p place, live traffic.Object, err error) error {
	switch kube.Classify(err) {
	case kube.Changed:
		return errRetry
	case kube.Missing:
		if live != nil {
			return errRetry
		}
		// its kind or its namespace does not exist
		return failure.New(failure.Refused, "%s cannot be created: %s", p, kube.Text(err))
	case kube.Rejected:
		now, readErr := a.get(ctx, p)
		if readErr != nil {
			return readErr
		}
		if meta(now).GetResourceVersion() != meta(live).GetResourceVersion() {
			return errRetry
		}
	case kube.Refused:
	default:
		return err
	}
	return failure.New(failure.Refused, "%s: its cluster does not accept the change: %s", p, kube.Text(err))
}

// meta wraps an object to read its metadata; that of nil is empty.
func meta(o traffic.Object) *unstructured.Unstructured { return &unstructured.Unstructured{Object: o} }

func sameMarks(a, b traffic.Object) bool {
	marks := func(o traffic.Object) []string {
		has := meta(o).GetAnnotations()
		return []string{has[rollout.AnnotationHeldBy], has[rollout.AnnotationRestore], has[traffic.AnnotationPlaces],
			meta(o).GetLabels()[workload.LabelClaimed]}
	}
	return slices.Equal(marks(a), marks(b))
}

// deletedError is the drift of an object that another client deleted.
func deletedError(p place) error {
	return failure.New(failure.Drift, "%s was deleted by another client: create it again with its original content, "+
		"then retry", p)
}

// workload reads the workload of a rollout; nil if it, or its kind, does not exist.
func (a *Activities) workload(ctx context.Context, s rollout.Subject) (traffic.Object, error) {
	ref := s.Workload.WorkloadRef
	k, err := a.kinds.lookup(ref.APIVersion, ref.Kind)
	var f *failure.Error
	switch {
	case errors.As(err, &f):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return a.get(ctx, k.at(s.Workload.Namespace, ref.Name))
}

// errRetry means that another client changed the object first: the job has to decide again.
var errRetry = errors.New("the object has changed in the meantime")
