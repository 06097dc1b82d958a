// Package reload keeps a value loaded from files, and loads it again when they have changed: tokens, certificates and
// keys are replaced while a process runs.
package reload

import (
	"crypto/x509"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Files is a value loaded from files. Its methods are safe for concurrent use.
type Files[T any] struct {
	paths []string
	load  func() (T, error)
	// pause is the minimum time between two checks of the files.
	pause time.Duration

	mu         sync.Mutex
	checkedAt  time.Time
	loaded     bool
	loadedFrom []stamp
	value      T
	err        error
}

// New loads a value from files. A folder among paths includes all its entries. The files are checked at most once per
// pause; 0: at each call of Get. The error is that of the first load.
func New[T any](load func() (T, error), pause time.Duration, paths ...string) (*Files[T], error) {
	f := &Files[T]{paths: paths, load: load, pause: pause}
	_, err := f.Get()
	return f, err
}

// Get returns the value of the current files. If they are unusable it returns the error together with the last good
// value, if any: the caller decides whether to use that. Files are loaded only if they have changed, or if the last
// load failed.
func (f *Files[T]) Get() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.pause == 0 || f.checkedAt.IsZero() || now.Sub(f.checkedAt) >= f.pause {
		f.reloadIfChanged()
		f.checkedAt = now
	}
	return f.value, f.err
}

// Again is Get with an immediate check of the files.
func (f *Files[T]) Again() (T, error) {
	f.mu.Lock()
	f.checkedAt = time.Time{}
	f.mu.Unlock()
	return f.Get()
}

func (f *Files[T]) reloadIfChanged() {
	now := f.stamps() // taken before reading: a change in between is noticed at the next check
	if f.loaded && slices.EqualFunc(now, f.loadedFrom, stamp.same) && f.err == nil {
		return
	}
	value, err := f.load()
	f.loaded, f.err = true, err
	if err == nil {
		f.loadedFrom, f.value = now, value
	}
}

// stamp describes one file without its content.
type stamp struct {
	path string
	info fs.FileInfo
	err  error
}

// same reports whether the file has not changed. It distinguishes a file from another one that replaced it under the
// same name.
func (s stamp) same(other stamp) bool {
	if s.err != nil || other.err != nil {
		return s.path == other.path && fmt.Sprint(s.err) == fmt.Sprint(other.err)
	}
	return s.path == other.path && os.SameFile(s.info, other.info) && s.info.Size() == other.info.Size() &&
		s.info.ModTime().Equal(other.info.ModTime())
}

// stamps describes the files, without reading them.
func (f *Files[T]) stamps() (all []stamp) {
	for _, path := range f.paths {
		for _, name := range append([]string{path}, Entries(path)...) {
			info, err := os.Stat(name)
			all = append(all, stamp{name, info, err})
		}
	}
	return all
}

// Entries returns the sorted paths of a folder's entries, without those that begin with a dot: a Kubernetes volume
// keeps the actual files in such a folder. An unreadable folder has none.
func Entries(folder string) []string {
	found, _ := os.ReadDir(folder)
	var paths []string
	for _, entry := range found {
		if !strings.HasPrefix(entry.Name(), ".") {
			paths = append(paths, filepath.Join(folder, entry.Name()))
		}
	}
	slices.Sort(paths)
	return paths
}

// ReadCA reads CA certificates in PEM form. what describes the file in errors.
func ReadCA(what, path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", what, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s, %s, holds no certificate in PEM form", what, path)
	}
	return pool, nil
}
