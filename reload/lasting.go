package reload

import (
	"log/slog"
	"sync"
	"time"
)

// Lasting is a value loaded from files, or the previous value while they are invalid: they may just be being replaced.
type Lasting[T any] struct {
	files *Files[T]
	what  string
	log   *slog.Logger

	mu        sync.Mutex
	lastError string
}

// NewLasting loads a value as New does, and fails if the files are invalid now. what names them in the log; a nil log
// logs nothing.
func NewLasting[T any](what string, log *slog.Logger, load func() (T, error), pause time.Duration,
	paths ...string) (*Lasting[T], error) {
	files, err := New(load, pause, paths...)
	return &Lasting[T]{files: files, what: what, log: log}, err
}

// Get returns the value. It logs an error once, until it is resolved or changes: it is called for each request.
func (l *Lasting[T]) Get() T {
	value, err := l.files.Get()
	text := ""
	if err != nil {
		text = err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if text != "" && text != l.lastError && l.log != nil {
		l.log.Warn(l.what+" is invalid, still using its previous content", "error", err)
	}
	l.lastError = text
	return value
}
