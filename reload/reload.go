// Package reload keeps what was made of files, and makes it anew when they have changed: tokens, certificates and keys are replaced while a process runs.
package reload

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Files is what load makes of files. Its methods may be called by several goroutines at once.
type Files[T any] struct {
	paths []string
	load  func() (T, error)
	// pause is how long after a look at the files the next one is due.
	pause time.Duration

	mu     sync.Mutex
	looked time.Time
	loaded bool
	seen   string
	value  T
	err    error
}

// New follows files that load reads. A folder among the paths stands for all that is in it. The files are looked at again at most once in each pause; 0: at
// each call of Get. The error is that of the first load.
func New[T any](load func() (T, error), pause time.Duration, paths ...string) (*Files[T], error) {
	f := &Files[T]{paths: paths, load: load, pause: pause}
	_, err := f.Get()
	return f, err
}

// Get is what the files contain now. Files that can't be used are an error, and beside it what was made of them last, if anything: the caller knows
// whether that may still be used. They are loaded only when they have changed since, or when the last load has failed.
func (f *Files[T]) Get() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.pause == 0 || f.looked.IsZero() || now.Sub(f.looked) >= f.pause {
		f.look()
		f.looked = now
	}
	return f.value, f.err
}

// Again is Get with a look at the files, whatever the pause.
func (f *Files[T]) Again() (T, error) {
	f.mu.Lock()
	f.looked = time.Time{}
	f.mu.Unlock()
	return f.Get()
}

func (f *Files[T]) look() {
	now := f.stamp() // before they are read: a change in between is seen the next time
	if f.loaded && now == f.seen && f.err == nil {
		return
	}
	value, err := f.load()
	f.loaded, f.err = true, err
	if err == nil {
		f.seen, f.value = now, value
	}
}

// stamp is what tells one state of the files from another, without reading them.
func (f *Files[T]) stamp() string {
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

// Entries are the paths of what is in a folder, by name, without what begins with a dot: a volume of Kubernetes keeps the files themselves in such a folder.
// A folder that can't be read has none.
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
