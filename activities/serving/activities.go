// Package serving implements the activities on a serving's objects in a party's namespace: a ConfigMap, Services and a
// Deployment, which it creates, changes, watches and deletes. It has the credentials of one party's cluster and needs
// nothing of the centre except Temporal. Every activity is level-based and idempotent.
package serving

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/podpolicy"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/serving/admission"
)

// Options of the activities. The zero value is usable.
type Options struct {
	// Namespaces are the namespaces that this worker serves; empty means all.
	Namespaces []string
	// Queues are the task queues that this worker serves.
	Queues []string
	// AnyNamespace also allows servings in namespaces that do not invite them.
	AnyNamespace bool
	// Policy is what the party allows for the pods of servings, ReleasePolicy what it allows for those of all releases.
	Policy        admission.Policy
	ReleasePolicy podpolicy.Policy
	// Engine is the name of the engine whose operations this worker executes: its Temporal namespace. Deployments of
	// other engines on the same cluster are not reported.
	Engine string
	// ListenFor is how long one attempt waits for pods before it returns its worker slot; default 30 s. The activity's
	// StartToCloseTimeout is one minute.
	ListenFor time.Duration
	// Logger receives messages that are not part of results; default: slog.Default().
	Logger *slog.Logger
	// Now is the clock; default: time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	o.ListenFor = cmp.Or(o.ListenFor, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// queue identifies this worker in its reports: all workers of one queue observe the same.
func (o Options) queue() string { return strings.Join(o.Queues, ",") }

// Activities operate on the servings' objects of one cluster. They are safe for concurrent use.
type Activities struct {
	client   kube.Typed
	versions *versions.Reader
	watch    *Watch
	options  Options
	turns    *attempt.RequestSlots
	// namespaces caches recently read namespaces.
	namespaces recent.Cache
}

// New returns the activities of one cluster. The client's own timeout bounds each request. watch, which reads the same
// cluster, wakes the activities.
func New(client kube.Typed, reader *versions.Reader, watch *Watch, options Options) *Activities {
	return &Activities{client: client, versions: reader, watch: watch, options: options.withDefaults(),
		turns: attempt.NewRequestSlots()}
}

// Register registers the activities under the names that the workflows use.
func (a *Activities) Register(registry worker.ActivityRegistry) {
	for name, activityFunc := range map[string]any{
		serving.ActivityPrepare: a.Prepare, serving.ActivityApply: a.Apply, serving.ActivityRemove: a.Remove,
		serving.ActivityCreate: a.Create, serving.ActivityCheck: a.Check,
	} {
		registry.RegisterActivityWithOptions(activityFunc, activity.RegisterOptions{Name: name})
	}
}

// check refuses requests that cannot succeed whatever the state of the cluster.
func (a *Activities) check(req serving.PartyRequest) error {
	if len(a.options.Namespaces) > 0 && !slices.Contains(a.options.Namespaces, req.Domain) {
		return failure.New(failure.Refused, "this party's worker does not serve the namespace %s: start one that "+
			"does, or name the party that owns it", req.Domain)
	}
	return nil
}

// deployment reads a Deployment from the API server; nil if there is none.
func (a *Activities) deployment(ctx context.Context, of name) (*appsv1.Deployment, error) {
	d, err := a.client.AppsV1().Deployments(of.namespace).Get(ctx, of.deployment, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return d, err
}

// render renders the party's objects from the version that the request refers to, and marks them as the operation's.
func (a *Activities) render(ctx context.Context, req serving.PartyRequest) (serving.Objects, error) {
	version, err := a.versions.Version(ctx, req.Source)
	if err != nil {
		return serving.Objects{}, err
	}
	place, has := version.PartyIndex(req.Domain, req.Deployment)
	if !has {
		return serving.Objects{}, failure.New(failure.Refused,
			"version %s of serving %s has no Deployment %s of party %s", req.Version,
			req.ID, req.Deployment, req.Domain)
	}
	objects, err := serving.Render(version, place)
	if err != nil {
		return serving.Objects{}, err
	}
	serving.Mark(objects, req, a.options.Engine)
	return objects, nil
}
