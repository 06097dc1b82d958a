package workload

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

const (
	// An attempt first checks what blocks the pods after waiting for firstPodCheck, and then every podCheckEvery; it
	// also checks before it frees its worker slot, and under load less often.
	firstPodCheck, podCheckEvery = 2 * time.Second, 10 * time.Second
	// firstSharedPodCheck is firstPodCheck of an action of a leg whose pods are already changing.
	firstSharedPodCheck = 5 * time.Second
	// rereadEvery is how often a workload is read while its watch does not work.
	rereadEvery = time.Second
)

// job is the common part of an operation and a rollout's activity: an attempt at one workload.
type job struct {
	*attempt.Attempt
	a        *Activities
	workload catalog.Workload
	kind     kind
	// wake gets a value when one of the followed objects has changed since the last value was received.
	wake     chan struct{}
	lastRead *lastRead
	// nextPodCheck is when the pods are next checked.
	nextPodCheck time.Time
	// missing is what the events of the workload said about pods that are missing, silent what those of a pod said that
	// does not start.
	missing, silent askedEvents
	// rejected is the version of an object for which the server did not accept a change, and rejection its answer.
	rejected  string
	rejection error
	// blockingBudget describes the PodDisruptionBudget that has blocked the last deletion; "" if none has.
	blockingBudget string
}

// reader is a job that makes no attempt: it only reads.
func (a *Activities) reader(w catalog.Workload) job {
	return job{a: a, workload: w, kind: kind{w.WorkloadRef.Lookup()}, lastRead: &lastRead{}}
}

func (a *Activities) job(ctx context.Context, w catalog.Workload, terms attempt.Terms) job {
	terms.Subject = w.String()
	t := a.reader(w)
	t.Attempt = attempt.Start(ctx, attempt.Options{ListenFor: a.options.ListenFor, Slots: a.turns,
		Recorder: a.options.Recorder, Now: a.options.Now}, terms)
	t.lastRead = lastReadOf(ctx)
	first := firstPodCheck
	if t.lastRead.known != nil { // its pods are already changing
		first = firstSharedPodCheck
	}
	t.nextPodCheck = a.options.Now().Add(first * t.LoadFactor())
	return t
}

// lastRead is the last read of a workload.
type lastRead struct {
	// known is the workload as it was last read, or as our last write returned it; nil before the first read.
	known *unstructured.Unstructured
	// revisions are those that were read just before a write of ours that does not affect them; nil: they must be read.
	revisions []keptRevision
	// shared is true when several activities share it. unfollow ends the following of the workload between them; nil
	// before the first.
	shared   bool
	unfollow func()
}

type lastReadKey struct{}

// ShareReads lets the activities that are called with the context, one after the other and all for one workload, share
// their reads, and receive what the watch reports between two of them. end must be called.
func ShareReads(ctx context.Context) (shared context.Context, end func()) {
	last := &lastRead{shared: true}
	return context.WithValue(ctx, lastReadKey{}, last), func() {
		if last.unfollow != nil {
			last.unfollow()
		}
	}
}

func lastReadOf(ctx context.Context) *lastRead {
	if shared, is := ctx.Value(lastReadKey{}).(*lastRead); is {
		return shared
	}
	return &lastRead{}
}

// follow subscribes to changes of the workload and of the objects of its kind with these suffixes to its name, until
// leave is called.
func (t *job) follow(suffixes ...string) (leave func()) {
	n := t.a.notifier
	var targets []target
	for _, suffix := range append(suffixes, "") {
		targets = append(targets, t.target(t.workload.WorkloadRef.Name+suffix))
	}
	var unsubscribe func()
	t.wake, unsubscribe = n.waiting.Subscribe(targets...)
	unfollow := n.followed.begin(targets)
	n.begin(t.kind.Key())
	if t.lastRead.shared && t.lastRead.unfollow == nil {
		t.lastRead.unfollow = n.followed.begin(targets)
	}
	return func() { unsubscribe(); unfollow() }
}

// live reports whether changes of the followed objects are reliably delivered.
func (t *job) live() bool { return t.a.notifier.watches[t.kind.Key()].Live(t.workload.Namespace) }

// target is an object of the workload's kind and namespace.
func (t *job) target(name string) target { return target{t.kind.Key(), t.workload.Namespace, name} }

// changedSinceRead reports whether the watch has shown a change of the workload since it was last read: no further
// event may report that change.
func (t *job) changedSinceRead() bool {
	seen, _ := t.a.notifier.followed.get(t.target(t.workload.WorkloadRef.Name))
	newest, ordered := newer(seen.object, t.lastRead.known)
	return seen.left || !ordered || newest.GetResourceVersion() != t.lastRead.known.GetResourceVersion()
}

// wait waits for a change of the followed objects, until the next pod check at most, and for less while the watch is
// unreliable; unreported is true when the awaited condition may become true without such a change.
func (t *job) wait(reason string, unreported bool) attempt.Next {
	within := max(0, t.nextPodCheck.Sub(t.Now())) // 0: no read is needed
	if (unreported || !t.live()) && (within == 0 || within > rereadEvery) {
		within = rereadEvery
	}
	return attempt.Next{Action: attempt.Wait, Reason: reason, Within: within,
		Listen: func(context.Context) (<-chan struct{}, error) { return t.wake, nil }}
}

// delayPodCheck sets the next check of the pods after the usual interval.
func (t *job) delayPodCheck() { t.podCheckWithin(podCheckEvery * t.LoadFactor()) }

// podCheckWithin sets the next check of the pods after d, or at the end of the attempt if that is earlier.
func (t *job) podCheckWithin(d time.Duration) {
	t.nextPodCheck = t.Now().Add(d)
	if t.SlotDeadline().Before(t.nextPodCheck) {
		t.nextPodCheck = t.SlotDeadline()
	}
}

// checkPodsSooner sets the next check of the pods after d if that is earlier; 0: it does not change.
func (t *job) checkPodsSooner(d time.Duration) {
	if d > 0 && t.Now().Add(d).Before(t.nextPodCheck) {
		t.podCheckWithin(d)
	}
}

// ref is the location of an object in the workload's namespace.
func (t *job) ref(resource schema.GroupVersionResource, name string) kube.Ref {
	return kube.Ref{Resource: resource, Namespace: t.workload.Namespace, Name: name}
}

// get reads the workload.
func (t *job) get(ctx context.Context) (*unstructured.Unstructured, error) {
	return t.getNamed(ctx, t.workload.WorkloadRef.Name)
}

// getNamed reads the workload or its extra workload.
func (t *job) getNamed(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	o, err := t.a.cluster.Get(ctx, t.ref(t.kind.Resource, name))
	if err == nil && name == t.workload.WorkloadRef.Name {
		t.lastRead.known = o
	}
	return o, err
}

// refuse is the failure of a job that its workload's state does not allow.
func (t *job) refuse(format string, args ...any) error {
	return failure.New(failure.Refused, "%s: "+format, append([]any{t.workload}, args...)...)
}

// keep protects packages in the party's store, except for a dry run: soon no template names the previous one, and the
// task's record names it only at the end.
func (t *job) keep(ctx context.Context, sha256 ...string) {
	if t.Attempt != nil && t.a.options.Packages != nil {
		t.a.options.Packages.Keep(ctx, sha256...)
	}
}

// repairer is the user who has taken an object over for repair, "" if there is none, or if this process repairs.
func (a *Activities) repairer(o *unstructured.Unstructured) string {
	if a.options.Repairing {
		return ""
	}
	return o.GetAnnotations()[rollout.AnnotationRepair]
}

// change is one write on an object that was read; point and step name its failpoints.
type change struct {
	resource    schema.GroupVersionResource
	object      *unstructured.Unstructured
	ops         []jsonpatch.Op
	point, step string
}

// patch makes one write, and returns the object after it: nil when the change must be decided again, most likely
// because another client was faster. A change that is rejected twice on the same version is refused.
func (t *job) patch(ctx context.Context, c change) (*unstructured.Unstructured, error) {
	if by := t.a.repairer(c.object); by != "" {
		return nil, rollout.UnderRepair(c.object.GetKind()+" "+c.object.GetNamespace()+"/"+c.object.GetName(), by)
	}
	failpoint.Hit(c.point + ".before/" + c.step)
	after, err := t.a.cluster.Patch(ctx, t.ref(c.resource, c.object.GetName()), jsonpatch.Encode(c.ops), false)
	failpoint.Hit(c.point + ".after/" + c.step)
	version := c.object.GetResourceVersion()
	switch {
	case err == nil:
		t.rejected = ""
		t.a.options.Logger.InfoContext(ctx, "object changed", "workload", t.workload.String(), "object",
			c.object.GetKind()+" "+c.object.GetName(), "step", c.step)
		return after, nil
	case !kube.IsAny(err, kube.Rejected):
		return nil, err
	case t.rejected == version:
		return nil, t.refuse("its cluster does not accept the change: %s", kube.Text(err))
	}
	t.rejected, t.rejection = version, err
	return nil, nil
}

// deletePods removes pods, each only if it is unchanged since it was read. A ready pod is evicted, so that
// PodDisruptionBudgets apply; others are deleted, since a budget must not block a rollback. Pods that have disappeared
// or changed are left to the next round, and so are those that a budget blocks (blockingBudget). before and after name
// the failpoints.
func (t *job) deletePods(ctx context.Context, list []workload.Pod, before, after string) error {
	for _, p := range list {
		if p.Ready && t.blockingBudget != "" {
			continue // the budget probably covers this pod as well: the next round checks
		}
		failpoint.Hit(before)
		err := t.deletePod(ctx, p)
		failpoint.Hit(after)
		if held := kube.BudgetRefusal(err); held != "" {
			t.blockingBudget = held
			continue
		}
		if err != nil && !kube.IsAny(err, kube.Missing, kube.Changed) {
			return err
		}
	}
	return nil
}

func (t *job) deletePod(ctx context.Context, p workload.Pod) error {
	if p.Ready {
		return t.a.cluster.Evict(ctx, t.workload.Namespace, p.Name, types.UID(p.UID), p.Version)
	}
	return t.a.cluster.Delete(ctx, t.ref(podsResource, p.Name), types.UID(p.UID), p.Version)
}

// takeBlockingBudget returns what has blocked the last deletion, and clears it: then the deletion is retried.
func (t *job) takeBlockingBudget() string {
	held := t.blockingBudget
	t.blockingBudget = ""
	return held
}

// patchOf is a write as a JSON Patch for the object that was read; template is the pod template to set, nil leaves it.
// Its tests come first, so that the patch is applied completely or not at all.
func patchOf(o *unstructured.Unstructured, w *workload.Write, template map[string]any) []jsonpatch.Op {
	var tests, changes []jsonpatch.Op
	if w.OnlyIfUnchanged {
		tests = append(tests, jsonpatch.Test("/metadata/resourceVersion", o.GetResourceVersion()))
	}
	if w.ExpectedClaim != "" {
		tests = append(tests, jsonpatch.Test(jsonpatch.Annotation(workload.AnnotationClaimedBy), w.ExpectedClaim))
	}
	if w.Replicas != nil {
		if _, sized := jsonpatch.At(o.Object, "/spec/replicas"); sized { // always true on a real API server
			tests = append(tests, jsonpatch.Test("/spec/replicas", w.ExpectedReplicas))
		}
		changes = append(changes, jsonpatch.Add("/spec/replicas", *w.Replicas))
	}
	for _, s := range w.Settings {
		if len(s.Expected) > 0 {
			tests = append(tests, jsonpatch.Test(s.Path, s.Expected))
		}
		if !workload.AbsentJSON(s.Value) {
			changes = append(changes, jsonpatch.Add(s.Path, s.Value))
		} else if _, there := jsonpatch.At(o.Object, s.Path); there {
			changes = append(changes, jsonpatch.Remove(s.Path))
		}
	}
	if w.Stamp != "" {
		now, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "annotations")
		changes = append(changes, entries("/spec/template/metadata/annotations", now,
			map[string]string{workload.AnnotationRestartedBy: w.Stamp}, nil)...)
	}
	if template != nil {
		changes = append(changes, jsonpatch.Replace("/spec/template", workload.ForWorkload(o, template)))
	}
	if w.KeepTemplate != "" {
		keepTemplate(w, templateOf(o))
	}
	return slices.Concat(tests, changes, metadata(o, w))
}

// keepTemplate makes a write keep a template in its annotation KeepTemplate.
func keepTemplate(w *workload.Write, template map[string]any) {
	annotations := map[string]string{w.KeepTemplate: string(jsonpatch.Encode(template))}
	maps.Copy(annotations, w.Annotations)
	w.Annotations, w.KeepTemplate = annotations, ""
}

// metadata are the changes of labels and annotations.
func metadata(o *unstructured.Unstructured, w *workload.Write) []jsonpatch.Op {
	labels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(annotations, w.Annotations)
	maps.Copy(labels, w.Labels)
	unlabel := slices.Clone(w.Unlabel)
	remove := slices.Clone(w.Remove)
	if w.Claim != "" {
		annotations[workload.AnnotationClaimedBy], labels[workload.LabelClaimed] = w.Claim, workload.LabelClaimedValue
	}
	if w.Release {
		remove, unlabel = append(remove, workload.AnnotationClaimedBy), append(unlabel, workload.LabelClaimed)
	}
	if saved, err := rollout.ParseSaved(w.Annotations[workload.AnnotationRollout]); err == nil {
		labels[workload.LabelRollout] = saved.Mark()
	}
	if slices.Contains(w.Remove, workload.AnnotationRollout) {
		unlabel = append(unlabel, workload.LabelRollout)
	}
	return append(entries("/metadata/labels", o.GetLabels(), labels, unlabel),
		entries("/metadata/annotations", o.GetAnnotations(), annotations, remove)...)
}

// claimedLabel marks an object that a release holds.
var claimedLabel = map[string]string{workload.LabelClaimed: workload.LabelClaimedValue}

// entries are the changes of a map of labels or annotations, which is created if it does not exist.
func entries(path string, now, set map[string]string, remove []string) []jsonpatch.Op {
	var out []jsonpatch.Op
	if len(set) > 0 && len(now) == 0 {
		out = append(out, jsonpatch.Add(path, map[string]string{}))
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, jsonpatch.Add(path+"/"+jsonpatch.Escape(name), set[name]))
	}
	slices.Sort(remove)
	for _, name := range slices.Compact(remove) {
		if _, there := now[name]; there {
			out = append(out, jsonpatch.Remove(path+"/"+jsonpatch.Escape(name)))
		}
	}
	return out
}
