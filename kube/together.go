package kube

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway.io/slipway/pause"
)

const (
	// parallelCalls is how many requests Parallel has in progress at once.
	parallelCalls = 8
	// retryPause is the pause before an unanswered request is retried.
	retryPause = time.Second
)

// Parallel makes requests, at most eight at once, and returns the first error. An unanswered request is retried once,
// so that a short interruption does not fail it.
func Parallel(ctx context.Context, jobs []func(ctx context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelCalls)
	for _, job := range jobs {
		group.Go(func() error { return retryOnce(ctx, job) })
	}
	return group.Wait()
}

func retryOnce(ctx context.Context, job func(ctx context.Context) error) error {
	err := job(ctx)
	if err == nil || Classify(err) != Unreachable {
		return err
	}
	if pause.For(ctx, retryPause) != nil {
		return err
	}
	return job(ctx)
}
