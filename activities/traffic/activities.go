// Package traffic divides requests between the two versions of a workload. It reads Services and the objects that route
// to them, lets release/rollout/traffic decide, and writes the differences. Every activity is level-based and
// idempotent. A release saves what it borrows on the object itself, so that a user with kubectl can restore the object.
package traffic

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/utils/lru"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/traffic/scriptbox"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
)

// Options configure the activities. The zero value is usable.
type Options struct {
	// Namespaces are the namespaces that this worker serves; empty: all.
	Namespaces []string
	// Reach limits which objects releases route by, and whose scripts they use.
	Reach traffic.Reach
	// ScriptsNamespace is the worker's own namespace, whose scripts are the administrator's; "" if it has none.
	ScriptsNamespace string
	// Sandbox is the command that runs one script; empty: this program with scriptbox.Argument.
	Sandbox []string
	// ListenFor is how long one attempt waits for endpoints before it frees its worker slot; default 10 s.
	ListenFor time.Duration
	// Repairing allows writes to objects that the user has taken over for a repair (rollout.AnnotationRepair); the
	// repair command sets it.
	Repairing bool
	// Parties are the parties whose workloads are in this cluster; empty: the default party. The drift detector reports
	// to their rollouts only.
	Parties []string
	// Protection reads what the API server does to writes of this worker; nil: nothing.
	Protection *kube.ProtectionReader
	// Logger gets additional log lines; default: slog's.
	Logger *slog.Logger
}

// Activities act on the Services and routes of one cluster. They are safe for concurrent use.
type Activities struct {
	cluster kube.Cluster
	options Options
	slots   *attempt.RequestSlots
	kinds   *kinds
	scripts *scriptbox.Runner
	// removed are the UIDs of objects that this process recently deleted or restored, so that the drift detector
	// ignores the change.
	removed *lru.Cache
	// canaryCache caches, for a moment, the canary Ingresses of a namespace that no release made, scriptsCache the
	// administrator's scripts.
	canaryCache, scriptsCache recent.Cache
}

// maxRemoved is how many such UIDs are kept, until the watch delivers the change.
const maxRemoved = 1000

// New returns the activities of one cluster. It fails if the program cannot find its own executable, which runs
// scripts.
func New(client kube.Typed, objects dynamic.Interface, options Options) (*Activities, error) {
	options.ListenFor, options.Logger = cmp.Or(options.ListenFor, 10*time.Second),
		cmp.Or(options.Logger, slog.Default())
	if len(options.Parties) == 0 {
		options.Parties = []string{catalog.DefaultParty}
	}
	if slices.Contains(options.Namespaces, options.ScriptsNamespace) {
		options.ScriptsNamespace = "" // a namespace of workloads is its tenants'
	}
	scripts, err := scriptbox.NewRunner(options.Sandbox)
	if err != nil {
		return nil, err
	}
	return &Activities{cluster: kube.NewCluster(client, objects, options.Namespaces), options: options,
		slots: attempt.NewRequestSlots(),
		kinds: newKinds(client.Discovery()), scripts: scripts, removed: lru.New(maxRemoved)}, nil
}

// Borrowed lists the objects of a request's routings that a release currently holds.
func (a *Activities) Borrowed(ctx context.Context, req rollout.RouteRequest) ([]kube.Ref, error) {
	var out []kube.Ref
	for _, j := range jobs(req) {
		held, err := a.held(ctx, j, j.stable(), j.canary())
		if err != nil {
			return nil, err
		}
		for _, p := range held {
			if !slices.Contains(out, p.Ref) {
				out = append(out, p.Ref)
			}
		}
	}
	return out, nil
}
