package kube

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// togetherCalls is how many requests Together has under way at once.
	togetherCalls = 8
	// togetherPause is how long it waits before it makes a request again that got no answer.
	togetherPause = time.Second
)

// Together makes requests, at most eight at once, and returns the first error. A request that gets no answer is made once more: a short
// hiccup is no verdict.
func Together(ctx context.Context, jobs []func(ctx context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(togetherCalls)
	for _, job := range jobs {
		group.Go(func() error { return twice(ctx, job) })
	}
	return group.Wait()
}

func twice(ctx context.Context, job func(ctx context.Context) error) error {
	err := job(ctx)
	if err == nil || Classify(err) != Unreachable {
		return err
	}
	timer := time.NewTimer(togetherPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return job(ctx)
	case <-ctx.Done():
		return err
	}
}
