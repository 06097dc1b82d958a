package watch

import (
	"context"
	"sync"
)

// Background is a number of functions that run from Begin until Stop.
type Background struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Begin starts the functions and returns at once. Their context ends at Stop.
func (b *Background) Begin(all ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	for _, run := range all {
		b.running.Go(func() { run(ctx) })
	}
}

// Stop ends the functions and waits until they have returned.
func (b *Background) Stop(context.Context) error {
	b.cancel()
	b.running.Wait()
	return nil
}
