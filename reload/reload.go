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

	mu          sync.Mutex
	checkedAt   time.Time
	loaded      bool
	loadedStamp string
	value       T
	err         error
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
	now := f.fingerprint() // taken before reading: a change in between is noticed at the next check
	if f.loaded && now == f.loadedStamp && f.err == nil {
		return
	}
	value, err := f.load()
	f.loaded, f.err = true, err
	if err == nil {
		f.loadedStamp, f.value = now, value
	}
}

// stamp returns a fingerprint of the files' metadata, without reading them.
func (f *Files[T]) fingerprint() string {
	var b strings.Builder
	for _, path := range f.paths {
		info, err := os.Stat(path)
		writeStamp(&b, path, info, err)
		if err != nil || !info.IsDir() {
			continue
		}
		for _, name := range Entries(path) {
			info, err := os.Stat(name)
			writeStamp(&b, name, info, err)
		}
	}
	return b.String()
}

func writeStamp(b *strings.Builder, path string, info fs.FileInfo, err error) {
	if err != nil {
		fmt.Fprintf(b, "%s %v\n", path, err)
		return
	}
	fmt.Fprintf(b, "%s %d %d %s\n", path, info.Size(), info.ModTime().UnixNano(), identity(info))
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
