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
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/workload"
)

// notifier holds the watches of claimed workloads: one for each kind (for each kind and namespace, when the worker
// serves only some), started on first use and kept until the end. It wakes the attempts that wait for a workload. The
// watches keep only what the drift detector compares, and the complete object of workloads that an attempt follows.
type notifier struct {
	client  dynamic.Interface
	options Options

	ctx    context.Context
	cancel context.CancelFunc
	ending sync.WaitGroup

	waiting  watch.Subscriptions[target]
	followed followed

	// watches are by the keys of their kinds; begun are those that have been started.
	watches map[string]*watch.Watch[*claimedWorkload]
	mu      sync.Mutex
	begun   map[string]bool
	// revisions are the watches of the ReplicaSets or ControllerRevisions of namespaces in which pods move, one for
	// each, shared by all attempts. They keep the numbers that decisions need, and no templates.
	revisions map[revisionScope]*revisionWatch
}

// target is one workload, its kind by its key.
type target struct{ kind, namespace, name string }

func newNotifier(client dynamic.Interface, options Options) *notifier {
	ctx, cancel := context.WithCancel(context.Background())
	n := &notifier{client: client, options: options, ctx: ctx, cancel: cancel,
		watches: map[string]*watch.Watch[*claimedWorkload]{}, begun: map[string]bool{},
		followed: followed{objects: map[target]*followedObject{}}, revisions: map[revisionScope]*revisionWatch{}}
	for _, kind := range workload.Kinds {
		n.watches[kind.Key()] = n.watch(kind.Key())
	}
	return n
}

// watch prepares the watch of a kind.
func (n *notifier) watch(kind string) *watch.Watch[*claimedWorkload] {
	keep := func(o *unstructured.Unstructured) (*claimedWorkload, error) {
		n.followed.set(target{kind, o.GetNamespace(), o.GetName()}, o)
		return newClaimedWorkload(o), nil
	}
	notify := func(r *claimedWorkload) { n.waiting.Notify(target{kind, r.Namespace, r.Name}) }
	changed := watch.OnChange(notify)
	changed.Deleted = func(r *claimedWorkload) {
		n.followed.set(target{kind, r.Namespace, r.Name}, nil)
		notify(r)
	}
	failed := watch.Once(func(namespace string, err error) {
		n.options.Logger.Warn("the watch of claimed workloads failed; it is retried, and meanwhile awaited workloads "+
			"are read every second", "kind", kind, "namespace", cmp.Or(namespace, "all"), "error", err)
	})
	return watch.New(watch.Untyped(n.client, workload.ByKey(kind).Resource), keep, watch.Options{
		Namespaces: n.options.Namespaces, Labels: workload.SelectClaimed, Failed: failed}).
		Index(byClaim, func(r *claimedWorkload) []string { return []string{r.claim} }).Handle(changed)
}

// begin starts the watch of a kind, unless it is running.
func (n *notifier) begin(kind string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.begun[kind] {
		n.begun[kind] = true
		n.ending.Go(func() { n.watches[kind].Run(n.ctx) })
	}
}

// mainPaused reports whether the workload that belongs to an extra one is paused at a step under the same claim.
func (n *notifier) mainPaused(extra target, claim string) bool {
	return slices.ContainsFunc(n.watches[extra.kind].By(byClaim, claim), func(r *claimedWorkload) bool {
		return !r.extra && r.Namespace == extra.namespace && r.rest != nil && r.rest.Template != ""
	})
}

// byClaim indexes the workloads by their claim.
const byClaim = "claim"

func (n *notifier) stop() {
	n.cancel()
	n.ending.Wait()
}

// followed keeps the newest version of each workload with a running attempt, complete, as the watch has shown it. Of
// all other workloads the watch keeps only what is compared (claimedWorkload), so that its memory does not grow with
// waiting releases.
type followed struct {
	mu      sync.Mutex
	objects map[target]*followedObject
}

// followedObject is one of them; object is nil until the watch has shown it. left is true when the watch no longer
// shows it.
type followedObject struct {
	followers int
	object    *unstructured.Unstructured
	left      bool
}

// begin keeps these workloads from their next event on. end must be called.
func (f *followed) begin(targets []target) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range targets {
		if f.objects[t] == nil {
			f.objects[t] = &followedObject{}
		}
		f.objects[t].followers++
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, t := range targets {
			if f.objects[t].followers--; f.objects[t].followers == 0 {
				delete(f.objects, t)
			}
		}
	}
}

// set stores the version of a workload that the watch shows, or nil for one that has left the watch.
func (f *followed) set(t target, o *unstructured.Unstructured) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept := f.objects[t]; kept != nil {
		kept.object, kept.left = o, o == nil
	}
}

// get is the newest version of a workload that the watch has shown, which must not be changed; false if no attempt of
// this process works on the workload.
func (f *followed) get(t target) (followedObject, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept := f.objects[t]; kept != nil {
		return *kept, true
	}
	return followedObject{}, false
}

// newer is the newer of two versions of an object, by resourceVersion; false when they cannot be compared. Versions of
// one resource are increasing numbers (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
func newer(a, b *unstructured.Unstructured) (*unstructured.Unstructured, bool) {
	switch {
	case a == nil:
		return b, b != nil
	case b == nil:
		return a, true
	}
	versionA, errA := strconv.ParseUint(a.GetResourceVersion(), 10, 64)
	versionB, errB := strconv.ParseUint(b.GetResourceVersion(), 10, 64)
	if errA != nil || errB != nil || a.GetUID() != b.GetUID() {
		return nil, false
	}
	if versionA >= versionB {
		return a, true
	}
	return b, true
}

// revisionWatchIdle is how long the revisions of a namespace are watched after the last attempt that needed them: the
// next step usually follows soon, and listing them all again costs more than watching them.
const revisionWatchIdle = time.Minute

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

// useRevisions watches the revisions of a namespace until release is called, and for a while after that.
func (n *notifier) useRevisions(k kind, namespace string) (release func()) {
	s := revisionScope{k.revisions(), namespace}
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.revisions[s]
	if w == nil {
		w = n.watchRevisions(k, s)
		n.revisions[s] = w
	}
	w.users++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if w.users--; w.users > 0 {
			return
		}
		w.releases++
		at := w.releases
		time.AfterFunc(revisionWatchIdle, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			if w.users == 0 && w.releases == at {
				w.cancel()
				delete(n.revisions, s)
			}
		})
	}
}

func (n *notifier) watchRevisions(k kind, s revisionScope) *revisionWatch {
	failed := watch.Once(func(namespace string, err error) {
		n.options.Logger.Warn("the watch of revisions failed; it is retried, and meanwhile revisions are read "+
			"whenever their workload changes", "resource", s.resource.Resource, "namespace", namespace, "error", err)
	})
	keep := func(o *unstructured.Unstructured) (*watchedRevision, error) {
		seen := &watchedRevision{revision: k.revision(o)}
		seen.revision.template = nil
		seen.Namespace, seen.Name, seen.UID, seen.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetUID(),
			o.GetResourceVersion()
		if owner := metav1.GetControllerOf(o); owner != nil {
			seen.owner, seen.workload, seen.kind = owner.UID, owner.Name, workload.Key(owner.APIVersion, owner.Kind)
		}
		return seen, nil
	}
	shared := watch.New(watch.Untyped(n.client, s.resource), keep,
		watch.Options{Namespaces: []string{s.namespace}, Failed: failed}).
		Index(byOwner, func(seen *watchedRevision) []string { return []string{string(seen.owner)} }).
		Handle(watch.OnChange(func(seen *watchedRevision) {
			n.waiting.Notify(target{seen.kind, seen.Namespace, seen.workload})
		}))
	ctx, cancel := context.WithCancel(n.ctx)
	n.ending.Go(func() { shared.Run(ctx) })
	return &revisionWatch{Watch: shared, cancel: cancel}
}

// revisionsOf are the revisions of a workload as their watch has shown them, oldest first, without templates;
// errNotCached while there is no reliable watch.
func (n *notifier) revisionsOf(k kind, workload *unstructured.Unstructured) ([]keptRevision, error) {
	n.mu.Lock()
	w := n.revisions[revisionScope{k.revisions(), workload.GetNamespace()}]
	n.mu.Unlock()
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
