// Package source brings code to a party: packages by HTTP, and builds from Git. A package is fetched once, by the party's own worker, so that its digest is known
// and it is known to be sound before any pod is touched; the pods then fetch exactly those bytes (release/source).
package source

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/activities/source/packages"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/serving/admission"
	"slipway.io/slipway/release/source"
)

// atOnce is how many packages a worker downloads at the same time: each takes a file of its size.
const atOnce = 4

// Store keeps packages by digest and serves them to pods.
type Store interface {
	// Use says whether the store has the package of a digest, and keeps it from being swept for a while.
	Use(ctx context.Context, sha256 string) (bool, error)
	// Put gives a package to the store.
	Put(ctx context.Context, sha256 string, content io.Reader, size int64) error
	// List lists packages in the order of their digests, those after one; next is where to go on, "" when there are no more.
	List(ctx context.Context, limit int, after string) (items []packages.Package, next string, err error)
	// Delete removes a package that was neither stored nor used since that time: packages.ErrUsed if it was, packages.ErrAbsent if there is none.
	Delete(ctx context.Context, sha256 string, unusedSince time.Time) error
}

// Recorded is the whole URL of an item's package, from the record of its task.
type Recorded func(ctx context.Context, task string, item int) (string, error)

// Template is the template of the Job that an order asks for, as the task of the order has it; without a task, as the catalogue has it now.
type Template func(ctx context.Context, order build.Order) ([]byte, error)

// Options of the activities.
type Options struct {
	// Fetcher is how the party's pods fetch packages, and which addresses they and this worker may fetch from.
	Fetcher source.Fetcher
	// Store is the party's package store; nil: it has none.
	Store Store
	// Namespaces are those that this worker serves; empty: all. Packages that pod templates there name stay in the store.
	Namespaces []string
	// Keep is how long a package that nothing names stays in the store; 0: a day.
	Keep time.Duration
	// Recorded reads URLs whose query must not pass through a workflow; nil: this worker has no access to the engine's records.
	Recorded Recorded
	// Template reads the templates of builds, which pass through no workflow; nil: this worker has no access to the engine's records.
	Template Template
	// Policy is what the party allows the Jobs of builds.
	Policy admission.Policy
	// ListenFor is how long one attempt at a build waits for the cluster before it gives its place back; 0: 10 s.
	ListenFor time.Duration
	// Folder is where packages are while they are checked; "": the folder of temporary files.
	Folder string
	// Recorder takes the heartbeat that must not be lost; nil: the Temporal client of the activity's own worker.
	Recorder heartbeat.Recorder
	Logger   *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Activities fetch code for one party. They are safe for concurrent use.
type Activities struct {
	client  kube.Typed
	secrets func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	allow   source.Allow
	options Options
	places  chan struct{}
}

// New makes the activities of one party, whose Secrets client reads. It fails when Options.Fetcher.Allow cannot be read.
func New(client kube.Typed, options Options) (*Activities, error) {
	allow, err := source.ParseAllow(options.Fetcher.Allow)
	if err != nil {
		return nil, err
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	options.Keep, options.ListenFor = cmp.Or(options.Keep, defaultKeep), cmp.Or(options.ListenFor, defaultListen)
	return &Activities{client: client, allow: allow, options: options, places: make(chan struct{}, atOnce),
		secrets: func(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
			return client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		}}, nil
}

// Register registers the activities by the names that the workflows use.
func (a *Activities) Register(registry worker.ActivityRegistry) {
	registry.RegisterActivityWithOptions(a.Fetch, activity.RegisterOptions{Name: source.ActivityFetch})
	registry.RegisterActivityWithOptions(a.Confirm, activity.RegisterOptions{Name: source.ActivityConfirm})
	registry.RegisterActivityWithOptions(a.Resolve, activity.RegisterOptions{Name: build.ActivityResolve})
	registry.RegisterActivityWithOptions(a.Build, activity.RegisterOptions{Name: build.ActivityBuild})
	registry.RegisterActivityWithOptions(a.Unnamed, activity.RegisterOptions{Name: source.ActivityUnnamed})
	registry.RegisterActivityWithOptions(a.Remove, activity.RegisterOptions{Name: source.ActivityRemove})
}

// Fetcher is how the party's pods fetch packages.
func (a *Activities) Fetcher() source.Fetcher { return a.options.Fetcher }
