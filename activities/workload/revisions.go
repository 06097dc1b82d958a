package workload

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workload"
)

// keptRevision is a revision that the cluster keeps, with its pod template.
type keptRevision struct {
	pods.Revision
	uid      types.UID
	template map[string]any
}

// templateIn is the pod template of the revision with this name; nil if there is none.
func templateIn(kept []keptRevision, name string) map[string]any {
	i := slices.IndexFunc(kept, func(r keptRevision) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return kept[i].template
}

// revisionsOf reads the ReplicaSets or ControllerRevisions that a workload's selector matches, and returns those that it
// owns, oldest first.
func (t *job) revisionsOf(ctx context.Context, workload *unstructured.Unstructured) ([]keptRevision, error) {
	selector, err := selectorOf(workload)
	if err != nil {
		return nil, err
	}
	list, err := t.a.cluster.List(ctx, t.kind.revisions(), t.workload.Namespace, selector)
	if err != nil {
		return nil, err
	}
	var kept []keptRevision
	for i := range list {
		owner := metav1.GetControllerOf(&list[i])
		if owner != nil && owner.UID == workload.GetUID() {
			kept = append(kept, t.kind.revision(&list[i]))
		}
	}
	slices.SortFunc(kept, oldestFirst)
	return kept, nil
}

func oldestFirst(a, b keptRevision) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Name, b.Name))
}

func (k kind) revision(r *unstructured.Unstructured) keptRevision {
	raw, _, _ := unstructured.NestedMap(r.Object, "data", "spec", "template")
	is := pods.Revision{Name: r.GetName(), Number: number(r, "revision")}
	if k.Revisions == workload.ReplicaSets {
		raw = templateOf(r)
		counts := k.Count(r.Object)
		n, _ := strconv.ParseInt(r.GetAnnotations()[annotationRevision], 10, 64)
		is = pods.Revision{Name: k.RevisionOf(r), Number: n, HasCounts: true, Desired: counts.Size, Total: counts.Total,
			Ready: counts.Ready, Available: counts.Available, Rest: r.GetAnnotations()[rollout.AnnotationSettled]}
	}
	template := pods.Stripped(raw)
	is.Hash, is.Template = k.RevisionOf(r), pods.Digest(template)
	is.Images, is.Package = pods.Images(template), packageOf(template)
	return keptRevision{is, r.GetUID(), template}
}

// revisionWatchIdle is how long the revisions of a namespace are watched after the last attempt that needed them: the
// next step usually follows soon, and listing them all again costs more than watching them.
const revisionWatchIdle = time.Minute

// revisionWatches watch the ReplicaSets or ControllerRevisions of namespaces in which pods move, one watch for each,
// shared by all attempts. They keep the numbers that decisions need, and no templates.
type revisionWatches struct {
	notifier *notifier
	mu       sync.Mutex
	watches  map[revisionScope]*revisionWatch
}

// revisionScope is what one watch covers.
type revisionScope struct {
	resource  schema.GroupVersionResource
	namespace string
}

// revisionWatch is one watch; users is the number of attempts that use it, releases how many have used it: it ends when
// there has been no other for a while.
type revisionWatch struct {
	*watch.Watch[*watchedRevision]
	cancel          context.CancelFunc
	users, releases int
}

// byOwner indexes revisions by the UID of their workload.
const byOwner = "owner"

// watchedRevision is what a watch keeps of a revision.
type watchedRevision struct {
	metav1.PartialObjectMetadata
	revision keptRevision
	owner    types.UID
	// kind and workload are the kind and the name of its owner.
	kind, workload string
}

// use watches the revisions of a namespace until release is called, and for a while after that.
func (r *revisionWatches) use(k kind, namespace string) (release func()) {
	s := revisionScope{k.revisions(), namespace}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watches[s]
	if w == nil {
		w = r.begin(k, s)
		r.watches[s] = w
	}
	w.users++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.users--
		w.releases++
		at := w.releases
		time.AfterFunc(revisionWatchIdle, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if w.users == 0 && w.releases == at {
				w.cancel()
				delete(r.watches, s)
			}
		})
	}
}

func (r *revisionWatches) begin(k kind, s revisionScope) *revisionWatch {
	n := r.notifier
	failed := watch.Once(func(namespace string, err error) {
		n.options.Logger.Warn("the watch of revisions failed; it is retried, and meanwhile revisions are read "+
			"whenever their workload changes",
			"resource", s.resource.Resource, "namespace", namespace, "error", err)
	})
	shared := watch.New(watch.Untyped(n.client, s.resource), reduceRevision(k),
		watch.Options{Namespaces: []string{s.namespace}, Failed: failed}).
		Index(byOwner, func(seen *watchedRevision) []string { return []string{string(seen.owner)} }).
		Handle(watch.OnChange(func(seen *watchedRevision) {
			n.waiting.Notify(target{seen.kind, seen.Namespace, seen.workload})
		}))
	ctx, cancel := context.WithCancel(n.ctx)
	n.ending.Go(func() { shared.Run(ctx) })
	return &revisionWatch{Watch: shared, cancel: cancel}
}

// reduceRevision reduces a revision to what decisions need.
func reduceRevision(k kind) func(*unstructured.Unstructured) (*watchedRevision, error) {
	return func(o *unstructured.Unstructured) (*watchedRevision, error) {
		seen := &watchedRevision{revision: k.revision(o)}
		seen.revision.template = nil
		seen.Namespace, seen.Name, seen.UID, seen.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetUID(),
			o.GetResourceVersion()
		if owner := metav1.GetControllerOf(o); owner != nil {
			seen.owner, seen.workload, seen.kind = owner.UID, owner.Name,
				workload.Key(owner.APIVersion, owner.Kind)
		}
		return seen, nil
	}
}

// of are the revisions of a workload as their watch has shown them, oldest first, without templates; errNotCached while
// there is no reliable watch.
func (r *revisionWatches) of(k kind, workload *unstructured.Unstructured) ([]keptRevision, error) {
	r.mu.Lock()
	w := r.watches[revisionScope{k.revisions(), workload.GetNamespace()}]
	r.mu.Unlock()
	if w == nil || !w.Live(workload.GetNamespace()) {
		return nil, errNotCached
	}
	var kept []keptRevision
	for _, seen := range w.By(byOwner, string(workload.GetUID())) {
		kept = append(kept, seen.revision)
	}
	slices.SortFunc(kept, oldestFirst)
	return kept, nil
}
