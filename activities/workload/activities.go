// Package workload starts, stops, restarts and rolls out the workloads of a party's cluster: it reads a workload, lets
// release/operation or release/rollout/pods decide, makes the change, and waits. Every activity is level-based and
// idempotent: if its process is killed at any point, another one continues.
package workload

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/podpolicy"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/source"
)

// Options of the activities. The zero value is usable.
type Options struct {
	// Namespaces are those that this worker serves; empty: all. Requests for others are refused, and the watches are
	// limited to these namespaces, so that the worker needs no further permission.
	Namespaces []string
	// ListenFor is how long one attempt waits for the cluster before it frees its worker slot; default 10 s.
	ListenFor time.Duration
	// Logger logs what the results do not show; default: slog's.
	Logger *slog.Logger
	// Recorder sends the heartbeat that must not be lost (see Run); default: the Temporal client of the activity's own
	// worker.
	Recorder heartbeat.Recorder
	// Now is the clock; default: time.Now.
	Now func() time.Time
	// Repairing is true when the user who runs this has taken the objects over for repair (rollout.AnnotationRepair):
	// then they may be written.
	Repairing bool
	// Parties are those whose workloads are in this cluster; empty: the default party. Changes are reported only to
	// their rollouts.
	Parties []string
	// TrafficPreflight checks the traffic part of a rollout, in a namespace that is served; nil: a rollout that routes
	// is refused.
	TrafficPreflight func(ctx context.Context, req rollout.PreflightRequest) (rollout.PreflightResult, error)
	// Packages is the store of code packages; nil: deploys of packages are refused.
	Packages Packages
	// Policy is what the party allows in pod templates that releases write.
	Policy podpolicy.Policy
	// Protection reads what the API server does to writes of this worker; nil: the activities have a reader of their
	// own.
	Protection *kube.ProtectionReader
	// Temporal says whether the release that left something on a workload has ended; nil: that is not asked.
	Temporal execution.Describer
}

// Packages is the store of a party's code packages.
type Packages interface {
	// Fetcher is how the party's pods download packages.
	Fetcher() source.Fetcher
	// URL is the complete URL of a package, with its query.
	URL(ctx context.Context, p source.Package) (string, error)
	// Keep protects packages with these SHA-256 from deletion in the party's store for a while; "" is ignored.
	Keep(ctx context.Context, sha256 ...string)
	// Refuses returns the reason why a package cannot be fetched for a workload of this namespace.
	Refuses(ctx context.Context, p source.Package, namespace string) (source.Refusal, error)
	// RefusesBuild returns the reason why a build cannot be made in a namespace.
	RefusesBuild(ctx context.Context, order build.Order, namespace string) (source.Refusal, error)
}

// Activities act on the workloads of one cluster. They are safe for concurrent use.
type Activities struct {
	cluster  kube.Cluster
	options  Options
	turns    *attempt.RequestSlots
	notifier *notifier
	events   *events
	// protection reads what the API server does to writes of this worker.
	protection *kube.ProtectionReader
}

// New makes the activities of one cluster. The request limits of the clients apply.
func New(client kube.Typed, objects dynamic.Interface, options Options) *Activities {
	options.ListenFor, options.Logger = cmp.Or(options.ListenFor, 10*time.Second),
		cmp.Or(options.Logger, slog.Default())
	if options.Now == nil {
		options.Now = time.Now
	}
	if len(options.Parties) == 0 {
		options.Parties = []string{catalog.DefaultParty}
	}
	cluster := kube.NewCluster(client, objects, options.Namespaces)
	a := &Activities{cluster: cluster, options: options, turns: attempt.NewRequestSlots(),
		notifier:   newNotifier(objects, options),
		protection: cmp.Or(options.Protection, kube.NewProtectionReader(cluster))}
	if !options.Repairing { // the user who repairs sees what is done
		a.events = newEvents(client, options.Logger)
	}
	return a
}

// Register registers the activities by the names that the workflows use.
func (a *Activities) Register(registry worker.ActivityRegistry) {
	for name, activityFunc := range map[string]any{
		operation.ActivityRun:              a.Run,
		operation.ActivityRestore:          a.Restore,
		operation.ActivityCountUnavailable: a.CountUnavailable,
		operation.ActivityPreflight:        a.Preflight,
		operation.ActivityDiff:             a.Diff,
		rollout.ActivityPreflight:          a.PreflightRollouts,
	} {
		registry.RegisterActivityWithOptions(activityFunc, activity.RegisterOptions{Name: name})
	}
}

// Stop ends the watches. Running attempts continue without them.
func (a *Activities) Stop() {
	a.notifier.stop()
	a.events.stop()
}
