package traffic

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/activities/outcome"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
)

const (
	// permissionGrace is how long a lack of permission must last to be believed: an API server that has just started does not know all rules yet.
	permissionGrace = 5 * time.Second
	// shortestLook and longestLook limit the pause between two looks at endpoints.
	shortestLook, longestLook = 50 * time.Millisecond, time.Second
	// retryAfter is the pause between two attempts that wait.
	retryAfter = 2 * time.Second
)

// attempt is one attempt at one change of the traffic.
type attempt struct {
	a     *Activities
	req   rollout.RouteRequest
	beat  *beat
	until time.Time
	// look is the pause before the next look.
	look time.Duration
	// forbiddenSince is when a permission was first found lacking, in a row.
	forbiddenSince time.Time
}

// Route makes one change of the traffic, or finds that it is made. It fails with a failure.Kind as the error's type: NotReady is to be tried again, Drift and
// Claimed are somebody else's doing, WorkloadFailed says that the pods that should take the requests were not ready in time.
func (a *Activities) Route(ctx context.Context, req rollout.RouteRequest) (rollout.RouteResult, error) {
	if f := a.check(req); f != nil {
		return rollout.RouteResult{}, outcome.Wrap(f)
	}
	b, stop := startBeat(ctx, req.SpentSeconds)
	defer stop()
	t := &attempt{a: a, req: req, beat: b, until: a.options.Now().Add(a.options.ListenFor), look: shortestLook}
	result, err := t.run(ctx)
	return result, outcome.Wrap(err)
}

// check refuses what no look at the cluster could make right.
func (a *Activities) check(req rollout.RouteRequest) *failure.Error {
	switch {
	case !a.serves(req.Workload.Namespace):
		return failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", req.Workload, req.Workload.Namespace)
	case actions[req.Action] == nil:
		return failure.New(failure.Refused, "%s: there is no change of traffic called %q", req.Workload, req.Action)
	case req.Claim == "":
		return failure.New(failure.Refused, "%s: a change of traffic needs the release's claim", req.Workload)
	case req.NoCanary:
		return nil
	case req.Action == rollout.RoutePin && req.StableHash == "":
		return failure.New(failure.Refused, "%s: its stable revision is not known, so that no Service can be pinned to it", req.Workload)
	case (req.Action == rollout.RouteEnsure || req.Action == rollout.RouteToNew) && req.CanaryHash == "":
		return failure.New(failure.Refused, "%s: its new revision is not known, so that nothing can be routed to it", req.Workload)
	}
	return nil
}

func (t *attempt) run(ctx context.Context) (rollout.RouteResult, error) {
	for {
		message, err := actions[t.req.Action](ctx, t)
		if err == nil {
			return t.result(message), nil
		}
		if err := t.sort(ctx, err); err != nil {
			return rollout.RouteResult{}, err
		}
	}
}

func (t *attempt) result(message string) rollout.RouteResult {
	out := rollout.RouteResult{Modified: t.beat.Now().Modified, Message: message}
	if out.Modified {
		for _, r := range t.req.Routings {
			out.GraceSeconds = max(out.GraceSeconds, r.GraceSeconds)
		}
	}
	return out
}

// wrote notes what one part has done; a second round then finds out whether it is in effect.
func (t *attempt) wrote(wrote bool, err error) error {
	if wrote {
		t.beat.Note(func(p *progress) { p.Modified = true })
	}
	if err == nil || ofOurs(err) {
		t.reached()
	}
	return err
}

func ofOurs(err error) bool {
	var f *failure.Error
	return errors.As(err, &f) || errors.Is(err, errLookAgain)
}

func (t *attempt) reached() {
	t.forbiddenSince = time.Time{}
	now := t.a.options.Now()
	t.beat.Note(func(p *progress) { p.Read(now); p.Reached() })
}

// sort goes on after trouble that may pass (nil), or ends the attempt.
func (t *attempt) sort(ctx context.Context, err error) error {
	var f *failure.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errLookAgain):
		return nil
	case errors.As(err, &f) && f.Kind == failure.NotReady:
		return t.wait(ctx, f)
	case errors.As(err, &f):
		return f
	}
	now, spent := t.a.options.Now(), int64(t.beat.Now().Elapsed()/time.Second)
	switch sortTrouble(err) {
	case refused, rejected, changed:
		return failure.New(failure.Refused, "%s: its cluster does not accept this: %s", t.req.Workload, text(err))
	case forbidden:
		if t.forbiddenSince.IsZero() {
			t.forbiddenSince = now
		}
		if now.Sub(t.forbiddenSince) >= permissionGrace {
			f := failure.New(failure.Forbidden, "%s: this party's worker lacks a permission, which has to be granted: %s", t.req.Workload, text(err))
			f.SpentSeconds = spent
			return f
		}
	default:
		if f := t.outOfReach(now, spent, err); f != nil {
			return f
		}
	}
	return t.pause(ctx, longestLook)
}

// outOfReach counts an outage; past its budget, or at the attempt's end, it ends the attempt. Without a budget it is patient for ever.
func (t *attempt) outOfReach(now time.Time, spent int64, err error) error {
	var outage time.Duration
	t.beat.Note(func(p *progress) {
		outage = p.Failed(now)
		p.Message = "its cluster is out of reach: " + text(err)
	})
	budget := t.req.UnreachableBudgetSeconds
	if budget > 0 && outage > time.Duration(budget)*time.Second {
		f := failure.New(failure.Unreachable, "%s: its cluster has been out of reach for more than %d s: %s", t.req.Workload, budget, text(err))
		f.SpentSeconds = spent
		return f
	}
	if !now.Before(t.until) {
		return &failure.Error{Kind: failure.NotReady, Message: t.beat.Now().Message, RetryAfter: retryAfter}
	}
	return nil
}

// wait goes on looking until the attempt's or the deadline's end.
func (t *attempt) wait(ctx context.Context, f *failure.Error) error {
	t.beat.Note(func(p *progress) { p.Message = f.Message })
	deadline := t.req.DeadlineSeconds
	if deadline <= 0 {
		deadline = rollout.DefaultStepDeadlineSeconds
	}
	elapsed := t.beat.Now().Elapsed()
	if elapsed >= time.Duration(deadline)*time.Second {
		return failure.New(failure.WorkloadFailed, "%s: after %d s: %s", t.req.Workload, int64(elapsed/time.Second), f.Message)
	}
	if !t.a.options.Now().Before(t.until) {
		return &failure.Error{Kind: failure.NotReady, Message: f.Message, RetryAfter: retryAfter}
	}
	t.look = min(t.look*2, longestLook)
	return t.pause(ctx, t.look)
}

// pause waits a while, less when the worker is to stop.
func (t *attempt) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var stopping <-chan struct{}
	if activity.IsActivity(ctx) {
		stopping = activity.GetWorkerStopChannel(ctx)
	}
	select {
	case <-timer.C:
		return nil
	case <-stopping:
		return &failure.Error{Kind: failure.NotReady, Message: t.beat.Now().Message, RetryAfter: retryAfter}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// joined are sentences in one.
func joined(parts []string) string { return strings.Join(parts, "; ") }
