// Package serving holds a serving's objects in a party's namespace: a ConfigMap, Services and a Deployment, which it creates, changes,
// watches and removes. It holds the credentials of one party's cluster and needs nothing of the centre but Temporal. Every activity is
// level-based and idempotent.
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
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/serving/admission"
	"slipway.io/slipway/store/recent"
)

// Options of the activities. The zero value is usable.
type Options struct {
	// Namespaces are those that this worker serves; empty: all.
	Namespaces []string
	// Queues are the task queues that this worker serves.
	Queues []string
	// AnyNamespace brings servings into namespaces that do not invite them too.
	AnyNamespace bool
	// Policy is what the party allows the pods of servings.
	Policy admission.Policy
	// Engine is the name of the engine whose operations this worker carries out: its Temporal namespace. What another engine runs on the
	// same cluster is that one's news.
	Engine string
	// ListenFor is how long one attempt waits for pods before it gives its place back; default 30 s. The activity's StartToCloseTimeout is a minute.
	ListenFor time.Duration
	// CallTimeout is how long one request to the API server may take; default 5 s.
	CallTimeout time.Duration
	// Logger takes what is worth knowing beyond the results; default: slog's.
	Logger *slog.Logger
	// Now is the clock; default: time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	o.ListenFor, o.CallTimeout = cmp.Or(o.ListenFor, 30*time.Second), cmp.Or(o.CallTimeout, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// queue is what names this worker in what it tells: workers of one queue see the same.
func (o Options) queue() string { return strings.Join(o.Queues, ",") }

// Activities act on the servings' objects of one cluster. They are safe for concurrent use.
type Activities struct {
	client   kube.Typed
	versions *versions.Reader
	watch    *Watch
	options  Options
	turns    *attempt.Turns
	// namespaces are those that were looked at a moment ago.
	namespaces recent.Answers
}

// New makes the activities of one cluster. They are woken by watch, which reads the same cluster.
func New(client kube.Typed, reader *versions.Reader, watch *Watch, options Options) *Activities {
	return &Activities{client: client, versions: reader, watch: watch, options: options.withDefaults(), turns: attempt.NewTurns()}
}

// Register registers the activities by the names that the workflows use.
func (a *Activities) Register(registry worker.ActivityRegistry) {
	for name, activityFunc := range map[string]any{
		serving.ActivityPrepare: a.Prepare, serving.ActivityApply: a.Apply, serving.ActivityRemove: a.Remove,
		serving.ActivityCreate: a.Create, serving.ActivityCheck: a.Check,
	} {
		registry.RegisterActivityWithOptions(activityFunc, activity.RegisterOptions{Name: name})
	}
}

// check refuses what no look at the cluster could make right.
func (a *Activities) check(req serving.PartyRequest) error {
	if len(a.options.Namespaces) > 0 && !slices.Contains(a.options.Namespaces, req.Domain) {
		return failure.New(failure.Refused,
			"this party's worker does not serve the namespace %s: start one that does, or name the party that owns it", req.Domain)
	}
	return nil
}

func (a *Activities) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.options.CallTimeout)
}

// deployment reads a Deployment from the API server; nil when there is none.
func (a *Activities) deployment(ctx context.Context, of name) (*appsv1.Deployment, error) {
	call, cancel := a.call(ctx)
	defer cancel()
	d, err := a.client.AppsV1().Deployments(of.namespace).Get(call, of.deployment, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return d, err
}

// render makes the party's objects from the version that the request leads to, marked as the operation's.
func (a *Activities) render(ctx context.Context, req serving.PartyRequest) (serving.Objects, error) {
	call, cancel := a.call(ctx)
	defer cancel()
	version, err := a.versions.Version(call, req.Source)
	if err != nil {
		return serving.Objects{}, err
	}
	place, has := version.Place(req.Domain, req.Deployment)
	if !has {
		return serving.Objects{}, failure.New(failure.Refused, "version %s of serving %s has no Deployment %s of party %s", req.Version,
			req.ID, req.Deployment, req.Domain)
	}
	objects, err := serving.Render(version, place)
	if err != nil {
		return serving.Objects{}, err
	}
	serving.Mark(objects, req, a.options.Engine)
	return objects, nil
}
