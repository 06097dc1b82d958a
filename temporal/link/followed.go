package link

import (
	"log/slog"
	"sync"

	"slipway.io/slipway/reload"
)

// reloadedFiles is the value of files, or the previous value while they are invalid: they may just be being replaced.
type reloadedFiles[T any] struct {
	files *reload.Files[T]
	log   *slog.Logger

	mu        sync.Mutex
	lastError string
}

// openFiles fails if the files are invalid now.
func openFiles[T any](log *slog.Logger, load func() (T, error), paths ...string) (*reloadedFiles[T], error) {
	files, err := reload.New(load, maxAge, paths...)
	return &reloadedFiles[T]{files: files, log: log}, err
}

// get returns the value. It logs an error once, until it is resolved or changes: it is called for each request.
func (f *reloadedFiles[T]) get() T {
	value, err := f.files.Get()
	text := ""
	if err != nil {
		text = err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if text != "" && text != f.lastError && f.log != nil {
		f.log.Warn("a file for Temporal is invalid, still using its previous content", "error", err)
	}
	f.lastError = text
	return value
}
