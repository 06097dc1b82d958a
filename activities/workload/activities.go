// Package workload starts, stops and restarts the workloads of a party's cluster: it reads a workload, lets release/workloadops decide,
// makes the change, and waits. Every activity is level-based and idempotent, so that a process that is killed at any point is followed by
// another that goes on.
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
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/store/recent"
)

// Options of the activities. The zero value is usable.
type Options struct {
	// Namespaces are those that this worker serves; empty: all. Requests for others are refused, and the watches keep to these namespaces,
	// so that the worker needs no permission beyond them.
	Namespaces []string
	// ListenFor is how long one attempt waits for the cluster before it gives its place back; default 10 s.
	ListenFor time.Duration
	// Logger takes what is worth knowing beyond the results; default: slog's.
	Logger *slog.Logger
	// Recorder takes the heartbeat that must not be lost (see Run); default: the Temporal client of the activity's own worker.
	Recorder heartbeat.Recorder
	// Now is the clock; default: time.Now.
	Now func() time.Time
	// Repairing says that whoever runs this has taken the objects into their own hands (rollout.AnnotationRepair): it may write to them.
	Repairing bool
	// Parties are those whose workloads are in this cluster; empty: the default party. Only their rollouts are told of changes.
	Parties []string
	// TrafficPreflight is the traffic's part of a rollout's preflight, of a namespace that is served; nil: a rollout that routes is refused.
	TrafficPreflight func(ctx context.Context, req rollout.PreflightRequest) (rollout.PreflightResult, error)
	// Packages is where code packages come from; nil: deploys of packages are refused.
	Packages Packages
}

// Packages is where a party's code packages come from.
type Packages interface {
	// Fetcher is how the party's pods fetch them.
	Fetcher() source.Fetcher
	// URL is the whole URL of a package, with its query.
	URL(ctx context.Context, p source.Package) (string, error)
	// Keep keeps packages of these SHA-256 in the party's store for a while; "" names none.
	Keep(ctx context.Context, sha256 ...string)
	// Refuses says why a package cannot be fetched for a workload of this namespace.
	Refuses(ctx context.Context, p source.Package, namespace string) (source.Refusal, error)
	// RefusesBuild says why a build can't be made in a namespace.
	RefusesBuild(ctx context.Context, order build.Order, namespace string) (source.Refusal, error)
}

// Activities act on the workloads of one cluster. They are safe for concurrent use.
type Activities struct {
	cluster  kube.Cluster
	options  Options
	turns    *attempt.Turns
	notifier *notifier
	guard    guardView
	events   *events
	// namespaces are those that were looked at a moment ago.
	namespaces recent.Answers
}

// New makes the activities of one cluster. The clients' own limits on requests per second apply.
func New(client kube.Typed, objects dynamic.Interface, options Options) *Activities {
	options.ListenFor, options.Logger = cmp.Or(options.ListenFor, 10*time.Second), cmp.Or(options.Logger, slog.Default())
	if options.Now == nil {
		options.Now = time.Now
	}
	if len(options.Parties) == 0 {
		options.Parties = []string{catalog.DefaultParty}
	}
	a := &Activities{cluster: kube.NewCluster(client, objects, options.Namespaces), options: options, turns: attempt.NewTurns(),
		notifier: newNotifier(objects, options)}
	if !options.Repairing { // a person who repairs sees what is done
		a.events = newEvents(client, options.Logger)
	}
	return a
}

// Register registers the activities by the names that the workflows use.
func (a *Activities) Register(registry worker.ActivityRegistry) {
	for name, activityFunc := range map[string]any{
		workloadops.ActivityRun:              a.Run,
		workloadops.ActivityRestore:          a.Restore,
		workloadops.ActivityCountUnavailable: a.CountUnavailable,
		workloadops.ActivityPreflight:        a.Preflight,
		workloadops.ActivityDiff:             a.Diff,
		rollout.ActivityPreflight:            a.PreflightRollout,
		rollout.ActivityBegin:                a.Begin,
		rollout.ActivityMove:                 a.Move,
		rollout.ActivityFinish:               a.Finish,
	} {
		registry.RegisterActivityWithOptions(activityFunc, activity.RegisterOptions{Name: name})
	}
}

// Stop ends the watches. Attempts that are under way go on without them.
func (a *Activities) Stop() {
	a.notifier.stop()
	a.events.stop()
}
