// Package source provides code to a party: it fetches packages by HTTP and builds commits from Git. The party's worker
// fetches each package once, so that its digest is known and the archive is checked before any pod is touched. The pods
// then fetch exactly those bytes (release/source).
package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/source/packages"
	"slipway.io/slipway/activities/source/space"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/podpolicy"
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

// Options of the activities.
type Options struct {
	// Fetcher configures how the party's pods fetch packages, and the addresses that they and this worker may fetch
	// from.
	Fetcher source.Fetcher
	// Unbounded is a client without a timeout, for watches and for the lists of all workloads; nil: the client of New.
	Unbounded kube.Typed
	// Store is the party's package store; nil: it has none.
	Store Store
	// StoreCA returns the current CAs of the store's certificate in PEM form; nil: those of the system.
	StoreCA func() string
	// TempBytes bounds the bytes of all temporary files; 0: maxDownloads packages of the largest size.
	TempBytes int64
	// Namespaces are the namespaces that this worker serves; empty: all. A package that a pod template in one of them
	// names stays in the store.
	Namespaces []string
	// Retention is how long an unreferenced package stays in the store; 0: a day.
	Retention time.Duration
	// RecordedURL reads the complete URL of an item's package, whose query must not pass through a workflow, from the
	// record of its task; nil: this worker has no access to the engine's records.
	RecordedURL func(ctx context.Context, task string, item int) (string, error)
	// Template reads the Job template of an order, which passes through no workflow: the one in the task's record, or the
	// catalogue's current one if the order has no task; nil: this worker has no access to the engine's records.
	Template func(ctx context.Context, order build.Order) ([]byte, error)
	// Policy is what the party allows in Jobs of builds, ReleasePolicy what it allows in the pods of all releases.
	Policy        admission.Policy
	ReleasePolicy podpolicy.Policy
	// ListenFor is how long one attempt at a build waits for changes in the cluster before it frees its worker slot; 0:
	// 10 s.
	ListenFor time.Duration
	Logger    *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Activities fetch code for one party. They are safe for concurrent use.
type Activities struct {
	client        kube.Typed
	allow         source.Allow
	options       Options
	downloadSlots chan struct{}
	space         *space.Space
}

// New returns the activities of one party, whose Secrets client reads. The client's own timeout bounds each request. It
// fails if Options.Fetcher.Allow cannot be parsed.
func New(client kube.Typed, options Options) (*Activities, error) {
	allow, err := source.ParseAllow(options.Fetcher.Allow)
	if err != nil {
		return nil, err
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	options.Logger = cmp.Or(options.Logger, slog.Default())
	options.Retention, options.ListenFor = cmp.Or(options.Retention, defaultRetention),
		cmp.Or(options.ListenFor, defaultListen)
	if options.Unbounded == nil {
		options.Unbounded = client
	}
	most := cmp.Or(options.TempBytes,
		maxDownloads*cmp.Or(options.Fetcher.Limits.Bytes, source.DefaultLimits.Bytes))
	return &Activities{client: client, allow: allow, options: options, downloadSlots: make(chan struct{}, maxDownloads),
		space: space.New(most)}, nil
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
func (a *Activities) Fetcher() source.Fetcher {
	fetcher := a.options.Fetcher
	if a.options.StoreCA != nil {
		fetcher.StoreCA = a.options.StoreCA()
	}
	return fetcher
}

// URL returns the complete URL of a package, including its query. A hidden query is read from the record of the task.
func (a *Activities) URL(ctx context.Context, p source.Package) (string, error) {
	if !p.Hidden {
		return p.URL, nil
	}
	if a.options.RecordedURL == nil {
		return "", failure.New(failure.Refused, "%s", a.unreadable(p))
	}
	return a.options.RecordedURL(ctx, p.Task, p.Item)
}

func (a *Activities) unreadable(p source.Package) string {
	return fmt.Sprintf("the query of %s stays out of Temporal's histories, so this party's worker cannot read it: "+
		"write the query into the Secret "+
		"that package.credentials names (key `query`), and take it out of httpSrcUri", p.Shown)
}

// Refuses returns the reason why a package cannot be fetched for a workload of this namespace. It sends no request to
// the source: the package may be published later.
func (a *Activities) Refuses(ctx context.Context, p source.Package, namespace string) (source.Refusal, error) {
	switch {
	case a.options.Fetcher.Image == "":
		return source.Refusal{Reason: "this party's worker does not know the image that pods fetch packages with: " +
			"set SLIPWAY_IMAGE to the image of Slipway"}, nil
	case p.Hidden && a.options.RecordedURL == nil:
		return source.Refusal{Key: source.KeyPackage, Reason: a.unreadable(p)}, nil
	}
	at, err := source.ParseURL(p.URL)
	if err != nil {
		return source.Refusal{Key: source.KeyPackage, Reason: err.Error()}, nil
	}
	if host, port, err := source.Authority(at); err != nil {
		return source.Refusal{Key: source.KeyPackage, Reason: err.Error()}, nil
	} else if err := a.allow.CheckHost(host, port); err != nil && !a.isStoreURL(p.URL) {
		return source.Refusal{Key: source.KeyPackage, Reason: err.Error()}, nil
	}
	credentials, err := a.credentials(ctx, p, namespace)
	var f *failure.Error
	switch {
	case errors.As(err, &f):
		return source.Refusal{Reason: f.Message}, nil
	case err != nil:
		return source.Refusal{}, err
	case credentials != nil && !credentials.Allows(at):
		return source.Refusal{Reason: fmt.Sprintf(
			"Secret %s/%s has no credentials for %s://%s: name it under the key `hosts`", namespace, p.Credentials,
			at.Scheme, at.Host)}, nil
	}
	return source.Refusal{}, nil
}

// credentials returns the credentials in the Secret that the package names; nil if it names none.
func (a *Activities) credentials(ctx context.Context, p source.Package, namespace string) (*source.Credentials, error) {
	if p.Credentials == "" {
		return nil, nil
	}
	data, err := a.secret(ctx, namespace, p.Credentials, "package.credentials")
	if err != nil {
		return nil, err
	}
	credentials, err := source.ParseCredentials(namespace+"/"+p.Credentials, data)
	if err != nil {
		return nil, err
	}
	return &credentials, nil
}

// secret returns the data of a Secret. field is the catalogue field that names it, for error messages.
func (a *Activities) secret(ctx context.Context, namespace, name, field string) (map[string][]byte, error) {
	secret, err := a.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, failure.New(failure.Refused, "Secret %s/%s, which %s names, does not exist: create it", namespace,
			name, field)
	case err != nil && kube.Classify(err) == kube.Forbidden:
		return nil, failure.New(failure.Refused, "this party's worker may not read Secret %s/%s, which %s names: "+
			"grant it get on that Secret (%s)", namespace, name, field, kube.Text(err))
	case err != nil:
		return nil, err
	}
	return secret.Data, nil
}
