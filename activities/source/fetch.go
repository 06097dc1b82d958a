package source

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/activities/source/archive"
	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/activities/source/space"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

// progress is the state that an attempt leaves for the next one: the result it was about to return, so that no package
// is downloaded twice.
type progress struct {
	workload.Progress
	Fetched *source.Fetched `json:"fetched,omitempty"`
}

// Fetch downloads a package once, checks that it is an intact archive within the limits, and puts it into the party's
// store. If the request names a digest, other bytes are refused.
func (a *Activities) Fetch(ctx context.Context, req source.FetchRequest) (fetched source.Fetched, err error) {
	f := a.start(ctx, req)
	defer func() { f.stop(err == nil) }()
	if was := f.details.Progress().Fetched; was != nil && a.stillAvailable(ctx, *was) {
		return *was, nil
	}
	fetched, err = f.fetch(ctx)
	if err == nil {
		f.details.Note(func(p *progress) { p.Fetched = &fetched })
		err = failpoint.Around("source.fetched", func() error { return f.details.Record(ctx, nil) })
	}
	return fetched, f.failure(ctx, err)
}

// stillAvailable reports whether the result of an earlier attempt is still valid: the store has the package, or the
// party has no store.
func (a *Activities) stillAvailable(ctx context.Context, was source.Fetched) bool {
	if !was.Stored {
		return a.options.Store == nil
	}
	has, err := a.options.Store.Use(ctx, was.SHA256)
	return has && err == nil
}

// Confirm checks that the source still serves what was fetched and that the store has it, so that a deleted or changed
// package is found before the pods fetch it. It downloads the package again if the HTTP headers do not prove that it is
// unchanged.
func (a *Activities) Confirm(ctx context.Context, req source.FetchRequest) (fetched source.Fetched, err error) {
	f := a.start(ctx, req)
	defer func() { f.stop(err == nil) }()
	fetched, err = f.confirm(ctx)
	return fetched, f.failure(ctx, err)
}

// fetching is one attempt at Fetch or Confirm.
type fetching struct {
	a       *Activities
	req     source.FetchRequest
	details *heartbeat.Details[progress]
	stop    func(succeeded bool)
	// since is when the first attempt was scheduled, attempts how many there were, including this one.
	since    time.Time
	attempts int
}

func (a *Activities) start(ctx context.Context, req source.FetchRequest) *fetching {
	f := &fetching{a: a, req: req, since: a.options.Now(), attempts: 1}
	if activity.IsActivity(ctx) {
		f.since, f.attempts = activity.GetInfo(ctx).ScheduledTime, int(activity.GetInfo(ctx).Attempt)
	}
	f.details, f.stop = heartbeat.Start(ctx, progress{})
	return f
}

// setMessage sets the progress message of the attempt.
func (f *fetching) setMessage(format string, args ...any) {
	f.details.Note(func(p *progress) { p.Message = fmt.Sprintf(format, args...) })
}

// String returns the package's name for messages.
func (f *fetching) String() string { return "package " + f.req.Shown }

// client returns a download client for the package's source, and the package's complete URL.
func (f *fetching) client(ctx context.Context) (*download.Client, string, error) {
	rawURL, err := f.a.URL(ctx, f.req.Package)
	if err != nil {
		return nil, "", err
	}
	credentials, err := f.a.credentials(ctx, f.req.Package, f.req.Namespace)
	if err != nil {
		return nil, "", err
	}
	options := download.Options{Allow: f.a.allow, Credentials: credentials, MaxBytes: f.a.options.Fetcher.Limits.Bytes,
		Log: f.a.options.Logger}
	if fetcher := f.a.Fetcher(); fetcher.Store != "" {
		options.Trusted = []string{fetcher.Store}
		if fetcher.StoreCA != "" {
			options.TrustedCAs = x509.NewCertPool()
			options.TrustedCAs.AppendCertsFromPEM([]byte(fetcher.StoreCA))
		}
	}
	return download.New(options), rawURL, nil
}

// isStoreURL reports whether a URL belongs to the party's own store.
func (a *Activities) isStoreURL(rawURL string) bool {
	store := a.options.Fetcher.Store
	return store != "" && strings.HasPrefix(rawURL, strings.TrimRight(store, "/")+"/")
}

func (f *fetching) fetch(ctx context.Context) (source.Fetched, error) {
	f.setMessage("waiting for %d other downloads", maxDownloads)
	select {
	case f.a.downloadSlots <- struct{}{}:
		defer func() { <-f.a.downloadSlots }()
	case <-ctx.Done():
		return source.Fetched{}, ctx.Err()
	}
	file, err := unlinkedTempFile(f.a.space)
	if err != nil {
		return source.Fetched{}, err
	}
	defer file.Close()
	client, rawURL, err := f.client(ctx)
	if err != nil {
		return source.Fetched{}, err
	}
	f.setMessage("downloading %s", source.Redact(rawURL))
	got, err := client.Fetch(ctx, rawURL, file)
	if errors.Is(err, space.ErrFull) {
		err = &download.Error{Kind: download.Temporary, URL: source.Redact(rawURL), Message: err.Error()}
	}
	if err != nil {
		return source.Fetched{}, err
	}
	if want := f.req.SHA256; want != "" && want != got.SHA256 {
		return source.Fetched{}, f.changedError(want, got.SHA256)
	}
	got.At = f.a.options.Now().UTC()
	if err := f.check(ctx, file.File, &got); err != nil {
		return source.Fetched{}, err
	}
	got.Stored = f.store(ctx, file.File, got)
	return got, nil
}

// changedError returns the failure of a source that served other bytes than before.
func (f *fetching) changedError(was, now string) error {
	if f.req.Built {
		return failure.New(failure.Refused, "%s is not what the build of service %s has made: the build reported "+
			"sha256:%s, and it is sha256:%s now; nothing was "+
			"deployed, so have the build make a package of its own for each commit", f, f.req.Service, was, now)
	}
	return failure.New(failure.Refused, "%s has changed while service %s was being released: it was sha256:%s, and "+
		"is sha256:%s now; nothing was deployed, so execute the plan again", f, f.req.Service, was, now)
}

// check reads the complete archive as the pods will, without writing. A package that is deployed as a single file is
// not checked.
func (f *fetching) check(ctx context.Context, file *os.File, fetched *source.Fetched) error {
	if f.req.File != "" {
		return nil
	}
	f.setMessage("checking %s", f)
	info, err := archive.Check(ctx, file, f.a.options.Fetcher.Limits)
	var refused *archive.Error
	if errors.As(err, &refused) {
		return failure.New(failure.Refused, "%s of service %s (sha256:%s) can't be unpacked: %s", f, f.req.Service,
			fetched.SHA256, refused)
	}
	if err != nil {
		return err
	}
	fetched.Format, fetched.Entries, fetched.UnpackedBytes = info.Format, info.Entries, info.Bytes
	return nil
}

// store puts the package into the party's store and reports whether it is there. A failing store fails nothing: the
// pods fetch from the source.
func (f *fetching) store(ctx context.Context, file *os.File, fetched source.Fetched) bool {
	store := f.a.options.Store
	if store == nil {
		return false
	}
	f.setMessage("storing %s", f)
	has, err := store.Use(ctx, fetched.SHA256)
	if err == nil && !has {
		err = failpoint.Around("source.store", func() error {
			return store.Put(ctx, fetched.SHA256, io.NewSectionReader(file, 0, fetched.Bytes), fetched.Bytes)
		})
	}
	if err != nil {
		f.a.options.Logger.WarnContext(ctx,
			"the package store cannot store a package: pods will fetch it from its source", "package",
			source.Redact(f.req.URL), "sha256", fetched.SHA256, "error", err)
	}
	return err == nil
}

func (f *fetching) confirm(ctx context.Context) (source.Fetched, error) {
	was := f.req.Previous
	client, rawURL, err := f.client(ctx)
	if err != nil {
		return source.Fetched{}, err
	}
	unchanged, err := client.Unchanged(ctx, rawURL, was)
	if err != nil {
		return source.Fetched{}, err
	}
	stored := f.a.options.Store != nil && f.a.stillAvailable(ctx, source.Fetched{SHA256: was.SHA256, Stored: true})
	if unchanged && (stored || f.a.options.Store == nil) {
		was.Stored = stored
		return was, nil
	}
	return f.fetch(ctx) // refuses other bytes
}

// failure converts the error of an attempt for Temporal: errors of the source are retried until the deadline.
func (f *fetching) failure(ctx context.Context, err error) error {
	var typed *failure.Error
	var fromSource *download.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.Is(err, heartbeat.ErrSuperseded):
		return err
	case errors.As(err, &typed):
		return attempt.RetriedError(typed)
	case errors.As(err, &fromSource):
		return attempt.ApplicationError(f.sourceFailure(fromSource))
	case kube.Classify(err) == kube.Unreachable:
		return attempt.RetriedError(failure.New(failure.Unreachable, "%s", kube.Text(err)))
	}
	return err
}

// sourceFailure classifies an error of the source: final, past the deadline, or worth a retry after a pause.
func (f *fetching) sourceFailure(e *download.Error) *failure.Error {
	pause, again := download.RetryAfter(e, f.attempts)
	if !again {
		return failure.New(failure.Refused, "%s of service %s can't be fetched: %s", f, f.req.Service, e.Message)
	}
	deadline := time.Duration(f.req.DeadlineSeconds) * time.Second
	if used := f.a.options.Now().Sub(f.since); deadline > 0 && used+pause >= deadline {
		return failure.New(failure.WorkloadFailed, "%s of service %s can't be fetched; it was tried for %d s: %s", f,
			f.req.Service, int64(used.Seconds()), e.Message)
	}
	f.setMessage("%s; retrying", e)
	return &failure.Error{Kind: failure.NotReady, RetryAfter: pause,
		Message: fmt.Sprintf("%s of service %s: %s", f, f.req.Service, e.Message)}
}
