package store

import (
	"context"
	"log/slog"
	"time"
)

// Setup prepares the home cluster for as long as it takes: a process that starts before its cluster waits for it, and says so in /readyz.
type Setup struct {
	store   *Store
	install bool
	log     *slog.Logger
	cancel  context.CancelFunc
	done    chan struct{}
}

// NewSetup prepares store's cluster; install says whether the definitions are applied and the engine's namespace is made.
func NewSetup(store *Store, install bool, log *slog.Logger) *Setup {
	return &Setup{store: store, install: install, log: log, done: make(chan struct{})}
}

// Start returns at once.
func (s *Setup) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		s.run(ctx)
	}()
	return nil
}

// Stop ends the watch on records.
func (s *Setup) Stop(context.Context) error {
	s.cancel()
	<-s.done
	return nil
}

// setupPause is how long a failed preparation waits before the next.
const setupPause = 2 * time.Second

func (s *Setup) run(ctx context.Context) {
	for err := s.prepare(ctx); err != nil; err = s.prepare(ctx) {
		s.log.Warn("the home cluster is not ready yet", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(setupPause):
		}
	}
	s.store.Run(ctx)
}

func (s *Setup) prepare(ctx context.Context) error {
	if !s.install {
		return s.store.CheckCRDs(ctx)
	}
	if err := s.store.EnsureCRDs(ctx); err != nil {
		return err
	}
	return s.store.EnsureNamespace(ctx)
}
