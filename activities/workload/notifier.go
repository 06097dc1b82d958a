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

	waiting   watch.Subscriptions[target]
	followed  followed
	revisions revisionWatches

	// watches are by the keys of their kinds; begun are those that have been started.
	watches map[string]*watch.Watch[*claimedWorkload]
	mu      sync.Mutex
	begun   map[string]bool
}

// target is one workload, its kind by its key.
type target struct{ kind, namespace, name string }

func newNotifier(client dynamic.Interface, options Options) *notifier {
	ctx, cancel := context.WithCancel(context.Background())
	n := &notifier{client: client, options: options, ctx: ctx, cancel: cancel,
		watches: map[string]*watch.Watch[*claimedWorkload]{}, begun: map[string]bool{},
		followed: followed{objects: map[target]*followedObject{}}}
	n.revisions = revisionWatches{notifier: n, watches: map[revisionScope]*revisionWatch{}}
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
			"are read "+
			"every second", "kind", kind, "namespace", cmp.Or(namespace, "all"), "error", err)
	})
	return watch.New(watch.Untyped(n.client, workload.ByKey(kind).Resource), keep, watch.Options{
		Namespaces: n.options.Namespaces, Labels: workload.SelectClaimed, Failed: failed}).
		Index(byClaim, func(r *claimedWorkload) []string { return []string{r.claim} }).Handle(changed)
}

// subscription is one waiting attempt's subscription to changes.
type subscription struct {
	// wake gets a value when one of the workloads has changed since the last value was received.
	wake chan struct{}
	// live reports whether changes are reliably delivered.
	live  func() bool
	leave func()
}

// subscribe subscribes to changes of workloads. leave must be called.
func (n *notifier) subscribe(targets ...target) subscription {
	wake, leave := n.waiting.Subscribe(targets...)
	unfollow := n.followed.begin(targets)
	for _, t := range targets {
		n.begin(t.kind)
	}
	return subscription{wake: wake, leave: func() { leave(); unfollow() }, live: func() bool {
		return !slices.ContainsFunc(targets, func(t target) bool { return !n.watches[t.kind].Live(t.namespace) })
	}}
}

// maxWait is how long to wait without another read: until the next pod check, and less while a watch is unreliable, or
// when it does not report the awaited condition. 0: no read is needed.
func (s subscription) maxWait(now, nextLook time.Time, unreported bool) time.Duration {
	var d time.Duration
	if now.Before(nextLook) {
		d = nextLook.Sub(now)
	}
	if (unreported || !s.live()) && (d == 0 || d > rereadEvery) {
		d = rereadEvery
	}
	return d
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

// find is what the watch keeps of a workload; nil when the watch does not show it.
func (n *notifier) find(t target) *claimedWorkload { return n.watches[t.kind].Get(t.namespace, t.name) }

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

// get is the newest version of a workload that the watch has shown, nil if none, and whether it has left the watch. The
// object must not be changed.
func (f *followed) get(t target) (o *unstructured.Unstructured, left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept := f.objects[t]; kept != nil {
		return kept.object, kept.left
	}
	return nil, false
}

// has reports whether an attempt of this process works on a workload.
func (f *followed) has(t target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[t] != nil
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
