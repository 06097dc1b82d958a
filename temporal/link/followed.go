package link

import (
	"log/slog"
	"sync"

	"slipway.io/slipway/reload"
)

// followed is what files contain, or contained before while they can't be used: they may be in the middle of being replaced.
type followed[T any] struct {
	files *reload.Files[T]
	log   *slog.Logger

	mu   sync.Mutex
	told string
}

// follow fails if the files can't be used now.
func follow[T any](log *slog.Logger, load func() (T, error), paths ...string) (*followed[T], error) {
	files, err := reload.New(load, pause, paths...)
	return &followed[T]{files: files, log: log}, err
}

// get tells the log of files that can't be used once, until that is over or something else is wrong: it is called for each request.
func (f *followed[T]) get() T {
	value, err := f.files.Get()
	text := ""
	if err != nil {
		text = err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if text != "" && text != f.told && f.log != nil {
		f.log.Warn("a file for Temporal is invalid, still using its previous content", "error", err)
	}
	f.told = text
	return value
}
