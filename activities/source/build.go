package source

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/activities/source/git"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

const (
	// podPollInterval is how often the pods of a waiting build are read.
	podPollInterval = 5 * time.Second
	// jobGrace is how many seconds longer than its Job's deadline an attempt waits: the Job's own failure is more
	// specific.
	jobGrace = 60
)

// Build builds a commit by a Job. Requests for the same build share one Job, and a completed build is reused. If the
// request asks for it, it also ends when the Job's pod does not come. The failure of a build carries a build.Built with
// the end of its log as data.
func (a *Activities) Build(ctx context.Context, req build.Request) (build.Built, error) {
	b := &building{Attempt: a.attempt(ctx, req, req.DeadlineSeconds+jobGrace, req.String()), a: a, req: req}
	if len(a.options.Namespaces) > 0 && !slices.Contains(a.options.Namespaces, req.Namespace) {
		return build.Built{}, attempt.ApplicationError(
			failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", req, req.Namespace))
	}
	if err := b.Run(ctx, b); err != nil {
		return build.Built{}, err
	}
	return b.built, nil
}

// building is one attempt at a build.
type building struct {
	*attempt.Attempt
	a     *Activities
	req   build.Request
	built build.Built
	// podsReadAt is when the pods were last read.
	podsReadAt time.Time
}

// buildProgress is the state that an attempt leaves for the next one (workload.Progress.Data).
type buildProgress struct {
	Job types.UID `json:"job"`
}

// Reconcile reads the Job, decides and acts. While the Job runs, its pods are read at most every podPollInterval.
func (b *building) Reconcile(ctx context.Context) (attempt.Next, error) {
	job, err := b.a.job(ctx, b.req)
	if err != nil {
		return attempt.Next{}, err
	}
	b.Read()
	seen := build.Observed{Job: job, Overdue: b.Overdue()}
	var was buildProgress
	if data := b.Progress().Data; len(data) > 0 && json.Unmarshal(data, &was) == nil {
		seen.Joined = was.Job
	}
	next := b.req.Decide(seen)
	due := b.Now().Sub(b.podsReadAt) >= b.pollInterval(job)
	if next.Action == build.ReadPods || next.Action == build.Wait && due && job != nil {
		b.podsReadAt = b.Now()
		if seen.Pods, err = b.a.podsOf(ctx, job); err != nil {
			return attempt.Next{}, err
		}
		seen.PodsSeen = true
		if seen.Trouble, seen.PatienceLeft = b.pendingReason(ctx, seen.Pods); len(seen.Pods) == 0 {
			seen.Trouble, seen.PatienceLeft = b.creationFailure(ctx, job)
		}
		next = b.req.Decide(seen)
	}
	return b.act(ctx, seen, next)
}

func (b *building) act(ctx context.Context, seen build.Observed, next build.NextAction) (attempt.Next, error) {
	b.Note(func(p *workload.Progress) { p.Message = next.Reason })
	switch next.Action {
	case build.Create:
		return attempt.Next{}, b.a.create(ctx, b.req)
	case build.Replace:
		return attempt.Next{}, b.a.remove(ctx, seen.Job, "build.replace")
	case build.Record:
		if err := b.a.record(ctx, seen.Job, next.Yield); err != nil {
			return attempt.Next{}, err
		}
		b.finish(seen, next.Yield, build.Tail(b.a.log(ctx, seen.Pods), false))
		return attempt.Next{Action: attempt.Done}, nil
	case build.Done:
		b.finish(seen, next.Yield, "")
		return attempt.Next{Action: attempt.Done}, nil
	case build.Fail:
		failed := failure.New(failure.WorkloadFailed, "%s", next.Reason)
		built := b.result(seen)
		built.Log = build.Tail(b.a.log(ctx, seen.Pods), true)
		failed.Data = built
		return attempt.Next{}, failed
	default:
		b.noteJob(seen.Job)
		if b.blocked(ctx, seen) {
			return attempt.Next{Action: attempt.Done}, nil
		}
		return attempt.Next{Action: attempt.Wait, Reason: next.Reason, Within: b.pollInterval(seen.Job),
			Listen: b.watch(seen.Job)}, nil
	}
}

// pollInterval is how often the pods are read. The first time it is shorter, until the Job has a pod.
func (b *building) pollInterval(job *batchv1.Job) time.Duration {
	if job != nil && job.Status.Active == 0 && b.Progress().Elapsed() < podPollInterval {
		return askEventsAfter
	}
	return podPollInterval
}

// noteJob records which Job the attempt waits for: when that Job ends, its result counts as this request's own.
func (b *building) noteJob(job *batchv1.Job) {
	if job == nil || job.DeletionTimestamp != nil {
		return
	}
	if data, err := json.Marshal(buildProgress{job.UID}); err == nil {
		b.Note(func(p *workload.Progress) { p.Data = data })
	}
}

func (b *building) finish(seen build.Observed, yield build.Yield, log string) {
	b.built = b.result(seen)
	b.built.Yield, b.built.Log = yield, log
}

// result describes the Job: its name, its times, and whether another release made it.
func (b *building) result(seen build.Observed) build.Built {
	built := build.Built{Job: b.req.JobName()}
	if job := seen.Job; job != nil {
		built.Reused, built.FinishedAt = b.req.Reused(job), build.Ended(job)
		if job.Status.StartTime != nil {
			built.StartedAt = new(job.Status.StartTime.UTC())
		}
	}
	return built
}

// watch returns a function that signals the first change of the Job.
func (b *building) watch(job *batchv1.Job) func(context.Context) (<-chan struct{}, error) {
	return func(ctx context.Context) (<-chan struct{}, error) {
		seconds := int64(b.a.options.ListenFor/time.Second) + 1
		changes, err := b.a.options.Unbounded.BatchV1().Jobs(b.req.Namespace).Watch(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + job.Name, ResourceVersion: job.ResourceVersion, TimeoutSeconds: &seconds})
		if err != nil {
			return nil, err
		}
		wake := make(chan struct{}, 1)
		go func() {
			defer changes.Stop()
			select {
			case <-ctx.Done():
			case <-changes.ResultChan():
				wake <- struct{}{}
			}
		}()
		return wake, nil
	}
}

// Missing implements attempt.Job. Creating the Job fails with NotFound when its namespace does not exist; a deleted Job
// is no error (job).
func (b *building) Missing(err error) error {
	return failure.New(failure.Refused, "%s: %v", b.req, err)
}

// Failed implements attempt.Job.
func (b *building) Failed(_ context.Context, f *failure.Error) *failure.Error { return f }

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
	return attempt.Start(ctx, attempt.Options{ListenFor: a.options.ListenFor, Now: a.options.Now},
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
