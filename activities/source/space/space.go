// Package space bounds the bytes of unfinished packages on disk.
package space

import (
	"errors"
	"fmt"
	"sync"
)

// ErrFull means that the unfinished packages have their maximum size together.
var ErrFull = errors.New("there is no temporary space left for packages (--package-temp-bytes)")

// Space is a number of bytes that transfers share. One that needs more than is left ends, so that the others can go on,
// and is repeated later.
type Space struct {
	most int64

	mu   sync.Mutex
	used int64
}

// New returns a Space of most bytes.
func New(most int64) *Space { return &Space{most: most} }

// Take takes bytes, or returns ErrFull.
func (s *Space) Take(bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes > s.most-s.used {
		return fmt.Errorf("%w: unfinished packages have %d of %d bytes", ErrFull, s.used, s.most)
	}
	s.used += bytes
	return nil
}

// Give gives bytes back.
func (s *Space) Give(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= bytes
}
