package source

import (
	"context"
	"errors"
	"time"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/activities/source/git"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

// Resolve returns the commit that a branch points at. Temporary errors of the server are retried until the deadline.
func (a *Activities) Resolve(ctx context.Context, req build.Request) (build.Resolved, error) {
	r := &resolving{Attempt: a.attempt(ctx, req, req.ResolveSeconds, "branch "+req.Branch+" of "+req.Shown), a: a,
		req: req}
	if err := r.Run(ctx, r); err != nil {
		return build.Resolved{}, err
	}
	return build.Resolved{Commit: r.commit}, nil
}

// defaultListen is the default of Options.ListenFor.
const defaultListen = 10 * time.Second

func (a *Activities) attempt(ctx context.Context, req build.Request, deadline int64, subject string) *attempt.Attempt {
	return attempt.Start(ctx, attempt.Options{ListenFor: a.options.ListenFor, Recorder: a.options.Recorder,
		Now: a.options.Now},
		attempt.Terms{Subject: subject, DeadlineSeconds: deadline, SpentSeconds: req.SpentSeconds,
			UnreachableBudgetSeconds: req.UnreachableBudgetSeconds})
}

// resolving is one attempt at resolving a branch.
type resolving struct {
	*attempt.Attempt
	a        *Activities
	req      build.Request
	commit   string
	failures int
}

// Reconcile reads the branch from the repository.
func (r *resolving) Reconcile(ctx context.Context) (attempt.Next, error) {
	repository, access, err := r.a.repository(ctx, r.req.Order, r.req.Namespace)
	if err != nil {
		return attempt.Next{}, err
	}
	r.Read()
	r.commit, err = access.Commit(ctx, repository, r.req.Branch)
	if err == nil {
		return attempt.Next{Action: attempt.Done}, nil
	}
	var failed *download.Error
	if !errors.As(err, &failed) {
		return attempt.Next{}, err
	}
	r.failures++
	pause, again := download.RetryAfter(failed, r.failures)
	switch {
	case !again:
		return attempt.Next{}, failure.New(failure.Refused, "branch %s of %s can't be resolved for service %s: %s",
			r.req.Branch, r.req.Shown, r.req.Service, failed.Message)
	case r.Overdue():
		return attempt.Next{}, failure.New(failure.WorkloadFailed,
			"branch %s of %s can't be resolved for service %s; it was tried for %d s: %s", r.req.Branch,
			r.req.Shown, r.req.Service, r.req.ResolveSeconds, failed.Message)
	}
	reason := "asking " + r.req.Shown + " again: " + failed.Message
	r.Note(func(p *workload.Progress) { p.Message = reason })
	return attempt.Next{Action: attempt.Wait, Reason: reason, Within: pause}, nil
}

// Missing implements attempt.Job.
func (r *resolving) Missing(err error) error { return err }

// Failed implements attempt.Job.
func (r *resolving) Failed(_ context.Context, f *failure.Error) *failure.Error { return f }

// repository parses the address of an order's repository, and returns it with the credentials and client that reach it.
func (a *Activities) repository(ctx context.Context, order build.Order, namespace string) (source.Repository,
	git.Access, error) {
	repository, err := source.ParseRepository(order.Repository)
	if err != nil {
		return repository, git.Access{}, err
	}
	options := download.Options{Allow: a.allow, Log: a.options.Logger}
	var access git.Access
	if order.Credentials != "" {
		data, err := a.secret(ctx, namespace, order.Credentials, "build.credentials")
		if err != nil {
			return repository, access, err
		}
		name := namespace + "/" + order.Credentials
		if repository.SSH() {
			key, err := source.ParseSSHKey(name, data)
			if err != nil {
				return repository, access, err
			}
			access.Key = &key
		} else {
			credentials, err := source.ParseCredentials(name, data)
			if err != nil {
				return repository, access, err
			}
			options.Credentials = &credentials
		}
	}
	access.Client = download.New(options)
	return repository, access, nil
}
