// Package traffic moves requests between the two versions of a workload: it reads Services and the objects that route to them, lets
// release/rollout/traffic decide, and writes what differs. Every activity is level-based and idempotent. What a release borrows it saves on
// the object itself, so that the object can be made what it was by whoever has a kubeconfig.
package traffic

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"slipway.io/slipway/activities/traffic/scriptbox"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/rollout"
)

// Options of the activities. The zero value is usable.
type Options struct {
	// Namespaces are those that this worker serves; empty: all.
	Namespaces []string
	// Sandbox is the command that runs one script; none: this program with scriptbox.Argument.
	Sandbox []string
	// ListenFor is how long one attempt waits for endpoints before it gives its place back; default 10 s.
	ListenFor time.Duration
	// CallTimeout is how long one request to the API server may take; default 5 s.
	CallTimeout time.Duration
	// Logger takes what is worth knowing beyond the results; default: slog's.
	Logger *slog.Logger
	// Now is the clock; default: time.Now.
	Now func() time.Time
}

// Activities act on the Services and routes of one cluster. They are safe for concurrent use.
type Activities struct {
	client  kubernetes.Interface
	objects dynamic.Interface
	reader  kube.Reader
	options Options
	kinds   *kinds
	scripts *scriptbox.Runner
}

// New makes the activities of one cluster. It fails when the program cannot find itself, which it needs to run scripts.
func New(client kubernetes.Interface, objects dynamic.Interface, options Options) (*Activities, error) {
	options.ListenFor, options.CallTimeout = cmp.Or(options.ListenFor, 10*time.Second), cmp.Or(options.CallTimeout, 5*time.Second)
	options.Logger = cmp.Or(options.Logger, slog.Default())
	if options.Now == nil {
		options.Now = time.Now
	}
	scripts, err := scriptbox.NewRunner(options.Sandbox)
	if err != nil {
		return nil, err
	}
	return &Activities{client: client, objects: objects, reader: kube.Live{Objects: objects, Client: client, Timeout: options.CallTimeout},
		options: options, kinds: newKinds(client.Discovery()), scripts: scripts}, nil
}

// Register registers the activities by the names that the workflows use.
func (a *Activities) Register(registry worker.ActivityRegistry) {
	registry.RegisterActivityWithOptions(a.Route, activity.RegisterOptions{Name: rollout.ActivityRoute})
}

// serves says whether the worker serves a namespace.
func (a *Activities) serves(namespace string) bool {
	return len(a.options.Namespaces) == 0 || slices.Contains(a.options.Namespaces, namespace)
}

// call limits one request to the API server.
func (a *Activities) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.options.CallTimeout)
}
