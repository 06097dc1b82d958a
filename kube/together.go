package kube

import (
	"context"
	"sync"
	"time"
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan func(ctx context.Context) error)
	var wg sync.WaitGroup
	for range min(togetherCalls, len(jobs)) {
		wg.Go(func() {
			for job := range queue {
				if err := twice(ctx, job); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, job := range jobs {
		queue <- job
	}
	close(queue)
	wg.Wait()
	return context.Cause(ctx)
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
