// Package workload starts, stops and restarts the workloads of a party's cluster: it reads a workload, lets release/workloadops decide,
// makes the change, and waits. Every activity is level-based and idempotent, so that a process that is killed at any point is followed by
// another that goes on.
package workload

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// Options of the activities. The zero value is usable.
type Options struct {
	// Namespaces are those that this worker serves; empty: all. Requests for others are refused, and the watches keep to these namespaces,
	// so that the worker needs no permission beyond them.
	Namespaces []string
	// ListenFor is how long one attempt waits for the cluster before it gives its place back; default 10 s.
	ListenFor time.Duration
	// CallTimeout is how long one request to the API server may take; default 5 s.
	CallTimeout time.Duration
	// Logger takes what is worth knowing beyond the results; default: slog's.
	Logger *slog.Logger
	// Recorder takes the heartbeat that must not be lost (see Run); default: the Temporal client of the activity's own worker.
	Recorder heartbeat.Recorder
	// Now is the clock; default: time.Now.
	Now func() time.Time
	// TrafficPreflight is the traffic's part of a rollout's preflight; nil: a rollout that routes is refused.
	TrafficPreflight TrafficPreflight
}

// TrafficPreflight checks without a write whether a rollout's traffic can be routed. holder is the claim of another release on the object
// on.
type TrafficPreflight func(ctx context.Context, req rollout.PreflightRequest) (refusals []rollout.Refusal, holder, on string, err error)

// Activities act on the workloads of one cluster. They are safe for concurrent use.
type Activities struct {
	client   kubernetes.Interface
	objects  dynamic.Interface
	reader   kube.Reader
	options  Options
	notifier *notifier
}

// New makes the activities of one cluster. The clients' own limits on requests per second apply.
func New(client kubernetes.Interface, objects dynamic.Interface, options Options) *Activities {
	options.ListenFor, options.CallTimeout = cmp.Or(options.ListenFor, 10*time.Second), cmp.Or(options.CallTimeout, 5*time.Second)
	options.Logger = cmp.Or(options.Logger, slog.Default())
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Activities{client: client, objects: objects, options: options, notifier: newNotifier(objects, options),
		reader: kube.Live{Objects: objects, Client: client, Timeout: options.CallTimeout}}
}

// Register registers the activities by the names that the workflows use.
func (a *Activities) Register(registry worker.ActivityRegistry) {
	for name, activityFunc := range map[string]any{
		workloadops.ActivityRun:              a.Run,
		workloadops.ActivityRestore:          a.Restore,
		workloadops.ActivityCountUnavailable: a.CountUnavailable,
		workloadops.ActivityPreflight:        a.Preflight,
		rollout.ActivityPreflight:            a.PreflightRollout,
		rollout.ActivityBegin:                a.Begin,
		rollout.ActivityMove:                 a.Move,
		rollout.ActivityFinish:               a.Finish,
	} {
		registry.RegisterActivityWithOptions(activityFunc, activity.RegisterOptions{Name: name})
	}
}

// Stop ends the watches. Attempts that are under way go on without them.
func (a *Activities) Stop() { a.notifier.stop() }

// serves says whether the worker serves a namespace.
func (a *Activities) serves(namespace string) bool {
	return len(a.options.Namespaces) == 0 || slices.Contains(a.options.Namespaces, namespace)
}

// call limits one request to the API server.
func (a *Activities) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.options.CallTimeout)
}

// attempts are the options of every attempt.
func (a *Activities) attempts() attempt.Options {
	return attempt.Options{ListenFor: a.options.ListenFor, Recorder: a.options.Recorder, Now: a.options.Now}
}

// patch sends a JSON Patch of an object, and returns the object as it is then.
func (a *Activities) patch(
	ctx context.Context, resource schema.GroupVersionResource, o *unstructured.Unstructured, body []byte, dryRun ...string,
) (*unstructured.Unstructured, error) {
	call, cancel := a.call(ctx)
	defer cancel()
	return a.objects.Resource(resource).Namespace(o.GetNamespace()).
		Patch(call, o.GetName(), types.JSONPatchType, body, metav1.PatchOptions{FieldManager: fieldManager, DryRun: dryRun})
}
