// Package traffic moves requests between the two versions of a workload: it reads Services and the objects that route to them, lets
// release/rollout/traffic decide, and writes what differs. Every activity is level-based and idempotent. What a release borrows it saves on
// the object itself, so that the object can be made what it was by whoever has a kubeconfig.
package traffic

import (
	"cmp"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/lru"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/traffic/scriptbox"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/store/recent"
)

// Options of the activities. The zero value is usable.
type Options struct {
	// Namespaces are those that this worker serves; empty: all.
	Namespaces []string
	// Sandbox is the command that runs one script; none: this program with scriptbox.Argument.
	Sandbox []string
	// ListenFor is how long one attempt waits for endpoints before it gives its place back; default 10 s.
	ListenFor time.Duration
	// Repairing says that whoever runs this has taken the objects into their own hands (rollout.AnnotationRepair): it may write to them.
	Repairing bool
	// Parties are those whose workloads are in this cluster; empty: the default party. Only their rollouts are told of changes.
	Parties []string
	// Logger takes what is worth knowing beyond the results; default: slog's.
	Logger *slog.Logger
}

// Activities act on the Services and routes of one cluster. They are safe for concurrent use.
type Activities struct {
	cluster kube.Cluster
	options Options
	turns   *attempt.Turns
	kinds   *kinds
	scripts *scriptbox.Runner
	// reference are scripts that lie where Kruise Rollouts reads them.
	reference referenceScripts
	// removed are the UIDs of objects that were deleted or given back lately, by nobody else.
	removed *lru.Cache
	// canaries are the canary Ingresses of others that namespaces were found to have a moment ago.
	canaries recent.Answers
}

// mostRemoved is how many such objects are remembered: until the watch has told of them.
const mostRemoved = 1000

// New makes the activities of one cluster. It fails when the program cannot find itself, which it needs to run scripts.
func New(client kube.Typed, objects dynamic.Interface, options Options) (*Activities, error) {
	options.ListenFor, options.Logger = cmp.Or(options.ListenFor, 10*time.Second), cmp.Or(options.Logger, slog.Default())
	if len(options.Parties) == 0 {
		options.Parties = []string{catalog.DefaultParty}
	}
	scripts, err := scriptbox.NewRunner(options.Sandbox)
	if err != nil {
		return nil, err
	}
	return &Activities{cluster: kube.NewCluster(client, objects, options.Namespaces), options: options, turns: attempt.NewTurns(),
		kinds: newKinds(client.Discovery()), scripts: scripts, removed: lru.New(mostRemoved)}, nil
}

// Register registers the activities by the names that the workflows use.
func (a *Activities) Register(registry worker.ActivityRegistry) {
	registry.RegisterActivityWithOptions(a.Route, activity.RegisterOptions{Name: rollout.ActivityRoute})
}
