package workload

import (
	"context"
	"encoding/json"
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
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workloadops"
)

const (
	// firstLook is after how much waiting an attempt first asks the pods what keeps them, lookEvery how often it does so then; it also asks
	// before it gives its place back, and in a crowd less often.
	firstLook, lookEvery = 2 * time.Second, 10 * time.Second
	// rereadEvery is how often a workload is read while its watch does not work.
	rereadEvery = time.Second
)

// job is what an operation and a rollout's activity have in common: an attempt at one workload.
type job struct {
	*attempt.Attempt
	a        *Activities
	workload catalog.Workload
	kind     kind
	sub      subscription
	// last is what was last seen of the workload; nil where nobody asks.
	last *lastLook
	// nextLook is when it next asks the pods.
	nextLook time.Time
	// rejected is the version of an object on which the server did not accept a change, and rejection its answer.
	rejected  string
	rejection error
	// heldUp is the PodDisruptionBudget that has held up the last deletion, in a sentence; "" when none has.
	heldUp string
}

func (a *Activities) job(ctx context.Context, w catalog.Workload, k kind, terms attempt.Terms) job {
	terms.Subject = w.String()
	options := attempt.Options{ListenFor: a.options.ListenFor, Turns: a.turns, Recorder: a.options.Recorder, Now: a.options.Now}
	t := job{Attempt: attempt.Start(ctx, options, terms), a: a, workload: w, kind: k, last: lookOf(ctx)}
	first := firstLook
	if t.last.known != nil { // its pods were on their way already
		first = lookEvery
	}
	t.nextLook = a.options.Now().Add(first * t.Crowd())
	return t
}

// lastLook is what was last seen of a workload.
type lastLook struct {
	// known is the workload as it was last read, or as our last write has left it; nil before the first look.
	known *unstructured.Unstructured
	// revisions are those that were read a moment ago, before a write of ours that has no effect on them; nil: they are to be read.
	revisions []keptRevision
	// together says that several activities share it. unfollow ends what has the workload followed from one to the next; nil before the first.
	together bool
	unfollow func()
}

type lookKey struct{}

// Together has the activities that are called with the context, one after the other and all for one workload, know of each other's looks, and of what the watch
// tells between two of them. end must be called.
func Together(ctx context.Context) (shared context.Context, end func()) {
	last := &lastLook{together: true}
	return context.WithValue(ctx, lookKey{}, last), func() {
		if last.unfollow != nil {
			last.unfollow()
		}
	}
}

func lookOf(ctx context.Context) *lastLook {
	if shared, is := ctx.Value(lookKey{}).(*lastLook); is {
		return shared
	}
	return &lastLook{}
}

// follow listens for changes of the workload and of those of its kind with these suffixes to its name. t.sub.leave must be called.
func (t *job) follow(suffixes ...string) {
	var targets []target
	for _, suffix := range append(suffixes, "") {
		targets = append(targets, target{pods.Key(t.workload.WorkloadRef), t.workload.Namespace, t.workload.WorkloadRef.Name + suffix})
	}
	t.sub = t.a.notifier.subscribe(targets...)
	if t.last.together && t.last.unfollow == nil {
		t.last.unfollow = t.a.notifier.followed.begin(targets)
	}
}

// outrun says that the watch has told of the workload since it was last read: no event to come may tell of that again.
func (t *job) outrun() bool {
	seen, left := t.a.notifier.followed.get(target{pods.Key(t.workload.WorkloadRef), t.workload.Namespace, t.workload.WorkloadRef.Name})
	newest, told := newer(seen, t.last.known)
	return left || !told || newest.GetResourceVersion() != t.last.known.GetResourceVersion()
}

// wait waits for a change of what is followed; untold says that such a change may not tell what is waited for.
func (t *job) wait(reason string, untold bool) attempt.Next {
	return attempt.Next{Action: attempt.Wait, Reason: reason, Within: t.sub.within(t.Now(), t.nextLook, untold),
		Listen: func(context.Context) (<-chan struct{}, error) { return t.sub.wake, nil }}
}

// lookLater has the pods asked again after the usual time.
func (t *job) lookLater() { t.lookWithin(lookEvery * t.Crowd()) }

// lookWithin has the pods asked after a while, at the attempt's end at the latest.
func (t *job) lookWithin(d time.Duration) {
	t.nextLook = t.Now().Add(d)
	if t.Until().Before(t.nextLook) {
		t.nextLook = t.Until()
	}
}

// ref is where an object of the workload's namespace is found.
func (t *job) ref(resource schema.GroupVersionResource, name string) kube.Ref {
	return kube.Ref{Resource: resource, Namespace: t.workload.Namespace, Name: name}
}

// get reads the workload.
func (t *job) get(ctx context.Context) (*unstructured.Unstructured, error) {
	o, err := t.a.cluster.Get(ctx, t.ref(t.kind.resource, t.workload.WorkloadRef.Name))
	if err == nil && t.last != nil {
		t.last.known = o
	}
	return o, err
}

// repairer is who has taken an object into their own hands, "" when nobody has, or when it is us.
func (a *Activities) repairer(o *unstructured.Unstructured) string {
	if a.options.Repairing {
		return ""
	}
	return o.GetAnnotations()[rollout.AnnotationRepair]
}

// change is one write on an object as it was read; point and step name its failpoints.
type change struct {
	resource    schema.GroupVersionResource
	object      *unstructured.Unstructured
	ops         []jsonpatch.Op
	point, step string
}

// patch makes one write, and returns the object as it is then: nil when the change has to be decided anew, since most likely somebody was
// faster. A change that is rejected twice on the same version is refused.
func (t *job) patch(ctx context.Context, c change) (*unstructured.Unstructured, error) {
	if by := t.a.repairer(c.object); by != "" {
		return nil, rollout.Repaired(c.object.GetKind()+" "+c.object.GetNamespace()+"/"+c.object.GetName(), by)
	}
	body, err := json.Marshal(c.ops)
	if err != nil {
		return nil, err
	}
	failpoint.Hit(c.point + ".before/" + c.step)
	after, err := t.a.cluster.Patch(ctx, t.ref(c.resource, c.object.GetName()), body, false)
	failpoint.Hit(c.point + ".after/" + c.step)
	version := c.object.GetResourceVersion()
	switch {
	case err == nil:
		t.rejected = ""
		t.a.options.Logger.InfoContext(ctx, "object changed", "workload", t.workload.String(), "object",
			c.object.GetKind()+" "+c.object.GetName(), "step", c.step)
		return after, nil
	case kube.Classify(err) != kube.Rejected:
		return nil, err
	case t.rejected == version:
		return nil, failure.New(failure.Refused, "%s: its cluster does not accept the change: %s", t.workload, kube.Text(err))
	}
	t.rejected, t.rejection = version, err
	return nil, nil
}

// deletePods takes pods away, each only as it was seen. One that serves is evicted, so that a PodDisruptionBudget has its say; one that does
// not is deleted, since a budget must not hold up a way back. One that is gone or has changed is left to the next look, and so are those that
// a budget holds up: heldUp says which one. before and after name the failpoints.
func (t *job) deletePods(ctx context.Context, list []workloadops.Pod, before, after string) error {
	for _, p := range list {
		if p.Ready && t.heldUp != "" {
			continue // the budget covers this one as well, most likely: the next look asks
		}
		failpoint.Hit(before)
		err := t.deletePod(ctx, p)
		failpoint.Hit(after)
		if held := kube.HeldUp(err); held != "" {
			t.heldUp = held
			continue
		}
		if err != nil {
			if kind := kube.Classify(err); kind != kube.Missing && kind != kube.Changed {
				return err
			}
		}
	}
	return nil
}

func (t *job) deletePod(ctx context.Context, p workloadops.Pod) error {
	if p.Ready {
		return t.a.cluster.Evict(ctx, t.workload.Namespace, p.Name, types.UID(p.UID), p.Version)
	}
	return t.a.cluster.Delete(ctx, t.ref(podsResource, p.Name), types.UID(p.UID), p.Version)
}

// takeHeldUp is what has held up the last deletion. It is told once: then the deletion is tried again.
func (t *job) takeHeldUp() string {
	held := t.heldUp
	t.heldUp = ""
	return held
}
