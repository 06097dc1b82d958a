// Package source provides code to a party: it fetches packages by HTTP and builds commits from Git. The party's worker
// fetches each package once, so that its digest is known and the archive is checked before any pod is touched. The pods
// then fetch exactly those bytes (release/source).
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

// maxDownloads is how many packages a worker downloads at once. Each needs a temporary file of its size.
const maxDownloads = 4

// Store keeps packages by digest and serves them to pods.
type Store interface {
	// Use reports whether the store has the package of this digest, and protects it from the sweep for a while.
	Use(ctx context.Context, sha256 string) (bool, error)
	// Put stores a package.
	Put(ctx context.Context, sha256 string, content io.Reader, size int64) error
	// List lists packages ordered by digest, beginning behind after. next is the value of after for the next page, ""
	// on the last one.
	List(ctx context.Context, limit int, after string) (items []packages.Package, next string, err error)
	// Delete removes a package that was neither stored nor used since unusedSince. It returns packages.ErrUsed if it
	// was, packages.ErrAbsent if there is no such package.
	Delete(ctx context.Context, sha256 string, unusedSince time.Time) error
}

// RecordedURL reads the complete URL of an item's package from the record of its task.
type RecordedURL func(ctx context.Context, task string, item int) (string, error)

// Template returns the Job template of an order: the one in the task's record, or the catalogue's current one if the
// order has no task.
type Template func(ctx context.Context, order build.Order) ([]byte, error)

// Options of the activities.
type Options struct {
	// Fetcher configures how the party's pods fetch packages, and the addresses that they and this worker may fetch
	// from.
	Fetcher source.Fetcher
	// Store is the party's package store; nil: it has none.
	Store Store
	// Namespaces are the namespaces that this worker serves; empty: all. A package that a pod template in one of them
	// names stays in the store.
	Namespaces []string
	// Retention is how long an unreferenced package stays in the store; 0: a day.
	Retention time.Duration
	// RecordedURL reads URLs whose query must not pass through a workflow; nil: this worker has no access to the
	// engine's records.
	RecordedURL RecordedURL
	// Template reads the Job templates of builds, which pass through no workflow; nil: this worker has no access to the
	// engine's records.
	Template Template
	// Policy limits what the Jobs of builds may do in this party.
	Policy admission.Policy
	// ListenFor is how long one attempt at a build waits for changes in the cluster before it frees its worker slot; 0:
	// 10 s.
	ListenFor time.Duration
	// Folder holds packages while they are checked; "": the system's folder for temporary files.
	Folder string
	// Recorder sends the heartbeat that must not be lost; nil: the Temporal client of the activity's own worker.
	Recorder heartbeat.Recorder
	Logger   *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Activities fetch code for one party. They are safe for concurrent use.
type Activities struct {
	client        kube.Typed
	secrets       func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	allow         source.Allow
	options       Options
	downloadSlots chan struct{}
}

// New returns the activities of one party, whose Secrets client reads. It fails if Options.Fetcher.Allow cannot be
// parsed.
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
	options.Retention, options.ListenFor = cmp.Or(options.Retention, defaultRetention),
		cmp.Or(options.ListenFor, defaultListen)
	return &Activities{client: client, allow: allow, options: options, downloadSlots: make(chan struct{}, maxDownloads),
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

// Fetcher returns how the party's pods fetch packages.
func (a *Activities) Fetcher() source.Fetcher { return a.options.Fetcher }
