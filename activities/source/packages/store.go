// Package packages keeps packages of code under the SHA-256 of their bytes, so that pods can download them long after their source is
// gone or has changed: a store on disk, its HTTP server, and a client.
package packages

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/failpoint"
)

// Package is what the store knows of one package.
type Package = client.StoredPackage

// What the store refuses.
var (
	// ErrAbsent: the store has no such package.
	ErrAbsent = errors.New("the store has no such package")
	// ErrUsed: the package was stored or used since the time that its deletion names.
	ErrUsed = errors.New("the package was stored or used since")
	// ErrWrongBytes: the bytes have another digest than the one they are stored under.
	ErrWrongBytes = errors.New("the bytes have another digest")
	// ErrTooLarge: the package is larger than the store takes.
	ErrTooLarge = errors.New("the package is too large")
	// ErrFull: the store's disk has no room for the package.
	ErrFull = errors.New("the store's disk is full")
)

// The folders of a store. The time at which a package was stored is its file's, so that Last-Modified never changes; when it was used since
// is the time of a file of the same name in the folder used.
const (
	stored  = "sha256"
	used    = "used"
	partial = "tmp"
	locked  = "lock"
)

// Options are what a store is opened with.
type Options struct {
	// MaxBytes is how large a package may be.
	MaxBytes int64
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Store keeps packages in a folder. A package appears whole or not at all: it is written beside, synced and renamed. One process works on a
// folder at a time.
type Store struct {
	root *os.Root
	lock *os.File
	max  int64
	now  func() time.Time
	// mu orders what makes a package appear, last longer, or disappear. Uploads hold it only once their bytes are on the disk.
	mu sync.Mutex
}

// Open opens the store in a folder, which it makes when it is absent, and clears away what a killed process left.
func Open(folder string, options Options) (*Store, error) {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, fmt.Errorf("the folder of packages cannot be made: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("the folder of packages cannot be opened: %w", err)
	}
	s := &Store{root: root, max: options.MaxBytes, now: options.Now}
	if s.now == nil {
		s.now = time.Now
	}
	if err := s.prepare(folder); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close lets another process open the store.
func (s *Store) Close() error {
	if s.lock != nil {
		return errors.Join(s.lock.Close(), s.root.Close())
	}
	return s.root.Close()
}

func (s *Store) prepare(folder string) error {
	var err error
	if s.lock, err = s.root.OpenFile(locked, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return fmt.Errorf("the folder of packages cannot be written: %w", err)
	}
	if err := lockFile(s.lock); err != nil {
		return fmt.Errorf("another process serves the packages in %s: end it first, or choose another folder: %w", folder, err)
	}
	for _, name := range []string{stored, used, partial} {
		if err := s.root.Mkdir(name, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("the folder of packages cannot be written: %w", err)
		}
	}
	if err := s.syncFolder("."); err != nil {
		return err
	}
	return s.clear()
}

// clear removes partial uploads, and the times of use of packages that are gone.
func (s *Store) clear() error {
	uploads, err := s.names(partial)
	if err != nil {
		return err
	}
	for _, name := range uploads {
		if err := s.root.RemoveAll(path.Join(partial, name)); err != nil {
			return fmt.Errorf("a partial upload cannot be removed: %w", err)
		}
	}
	uses, err := s.names(used)
	if err != nil {
		return err
	}
	for _, name := range uses {
		if _, err := s.root.Lstat(path.Join(stored, name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := s.root.Remove(path.Join(used, name)); err != nil {
			return fmt.Errorf("what is left of a deleted package cannot be removed: %w", err)
		}
	}
	return nil
}

// names are the files of a folder, sorted.
func (s *Store) names(folder string) ([]string, error) {
	opened, err := s.root.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("the folder of packages cannot be read: %w", err)
	}
	defer opened.Close()
	names, err := opened.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("the folder of packages cannot be read: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

func (s *Store) syncFolder(name string) error {
	folder, err := s.root.Open(name)
	if err != nil {
		return fmt.Errorf("the folder of packages cannot be read: %w", err)
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("the folder of packages cannot be synced: %w", err)
	}
	return nil
}

// ValidDigest says whether the text is a SHA-256 as the store has it: 64 hexadecimal digits in lower case.
func ValidDigest(text string) bool {
	return len(text) == 2*sha256.Size && strings.Trim(text, "0123456789abcdef") == ""
}

// Stat is what the store knows of a package.
func (s *Store) Stat(digest string) (Package, error) {
	if !ValidDigest(digest) {
		return Package{}, ErrAbsent
	}
	info, err := s.root.Lstat(path.Join(stored, digest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Package{}, ErrAbsent
	case err != nil:
		return Package{}, fmt.Errorf("package %s cannot be read: %w", digest, err)
	}
	return s.describe(digest, info)
}

func (s *Store) describe(digest string, info fs.FileInfo) (Package, error) {
	found := Package{SHA256: digest, Bytes: info.Size(), StoredAt: info.ModTime().UTC(), UsedAt: info.ModTime().UTC()}
	use, err := s.root.Lstat(path.Join(used, digest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return found, nil
	case err != nil:
		return Package{}, fmt.Errorf("the last use of package %s cannot be read: %w", digest, err)
	}
	if use.ModTime().After(found.UsedAt) {
		found.UsedAt = use.ModTime().UTC()
	}
	return found, nil
}

// Open opens a package. Whoever reads it reads on when it is deleted.
func (s *Store) Open(digest string) (*os.File, Package, error) {
	if !ValidDigest(digest) {
		return nil, Package{}, ErrAbsent
	}
	file, err := s.root.Open(path.Join(stored, digest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, Package{}, ErrAbsent
	case err != nil:
		return nil, Package{}, fmt.Errorf("package %s cannot be read: %w", digest, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, Package{}, errors.Join(fmt.Errorf("package %s cannot be read: %w", digest, err), file.Close())
	}
	found, err := s.describe(digest, info)
	if err != nil {
		return nil, Package{}, errors.Join(err, file.Close())
	}
	return file, found, nil
}

// List are the packages after a digest, in the order of their digests, limit of them at most. next is the digest to go on after; "" when
// there are no more.
func (s *Store) List(limit int, after string) (found []Package, next string, err error) {
	names, err := s.names(stored)
	if err != nil {
		return nil, "", err
	}
	found = []Package{}
	for _, name := range names {
		if name <= after || !ValidDigest(name) {
			continue
		}
		if len(found) == limit {
			return found, found[limit-1].SHA256, nil
		}
		one, err := s.Stat(name)
		if errors.Is(err, ErrAbsent) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, "", err
		}
		found = append(found, one)
	}
	return found, "", nil
}

// Use notes that a package is used now.
func (s *Store) Use(digest string) (Package, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.use(digest)
}

func (s *Store) use(digest string) (Package, error) {
	found, err := s.Stat(digest)
	if err != nil {
		return Package{}, err
	}
	// A use counts as later than what was seen before it, also by a clock that was set back: a deletion that names what it saw is refused.
	at := s.now()
	if !at.After(found.UsedAt) {
		at = found.UsedAt.Add(time.Microsecond)
	}
	if err := s.writeUse(path.Join(used, digest), at); err != nil {
		return Package{}, fmt.Errorf("the use of package %s cannot be noted: %w", digest, full(err))
	}
	return s.Stat(digest)
}

func (s *Store) writeUse(name string, at time.Time) error {
	file, err := s.root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(s.root.Chtimes(name, at, at), file.Sync(), file.Close())
	return errors.Join(err, s.syncFolder(used))
}

// Delete removes a package that was neither stored nor used since that time.
func (s *Store) Delete(digest string, unusedSince time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.Stat(digest)
	if err != nil {
		return err
	}
	if !found.UsedAt.Before(unusedSince) {
		return fmt.Errorf("%w %s, at %s", ErrUsed, unusedSince.Format(time.RFC3339Nano), found.UsedAt.Format(time.RFC3339Nano))
	}
	if err := s.root.Remove(path.Join(stored, digest)); err != nil {
		return fmt.Errorf("package %s cannot be deleted: %w", digest, err)
	}
	if err := s.syncFolder(stored); err != nil {
		return err
	}
	failpoint.Hit("packages.deleted")
	if err := s.root.Remove(path.Join(used, digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("what is left of package %s cannot be removed: %w", digest, err)
	}
	return nil
}

// Put stores a package, or notes its use if it is there already. Bytes of another digest are never seen by anybody.
func (s *Store) Put(digest string, content io.Reader) (put Package, created bool, err error) {
	if !ValidDigest(digest) {
		return Package{}, false, fmt.Errorf("%q is no SHA-256: want 64 hexadecimal digits in lower case", digest)
	}
	name := path.Join(partial, digest+"."+rand.Text())
	file, err := s.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return Package{}, false, fmt.Errorf("package %s cannot be written: %w", digest, full(err))
	}
	defer func() {
		if !created {
			_ = s.root.Remove(name) // what stays is cleared away at the next start
		}
	}()
	err = s.write(file, digest, content)
	if err := errors.Join(err, file.Close()); err != nil {
		return Package{}, false, err
	}
	failpoint.Hit("packages.written")
	return s.appear(name, digest)
}

// write copies the content to the disk, and checks it.
func (s *Store) write(file *os.File, digest string, content io.Reader) error {
	sum := sha256.New()
	n, err := io.CopyBuffer(hashed{file, sum}, io.LimitReader(content, s.max+1), make([]byte, 256<<10))
	switch {
	case err != nil:
		return fmt.Errorf("package %s cannot be written: %w", digest, full(err))
	case n > s.max:
		return s.tooLarge()
	}
	if have := hex.EncodeToString(sum.Sum(nil)); have != digest {
		return fmt.Errorf("%w: these %d bytes have the SHA-256 %s, and were sent as %s", ErrWrongBytes, n, have, digest)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("package %s cannot be written: %w", digest, full(err))
	}
	return nil
}

func (s *Store) tooLarge() error {
	return fmt.Errorf("%w: the store takes %d bytes at most (--package-max-bytes)", ErrTooLarge, s.max)
}

// appear gives a package its name.
func (s *Store) appear(name, digest string) (Package, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, err := s.use(digest); !errors.Is(err, ErrAbsent) {
		return found, false, err // another upload was faster
	}
	at := s.now()
	if err := s.root.Chtimes(name, at, at); err != nil {
		return Package{}, false, fmt.Errorf("package %s cannot be written: %w", digest, err)
	}
	if err := s.root.Rename(name, path.Join(stored, digest)); err != nil {
		return Package{}, false, fmt.Errorf("package %s cannot be written: %w", digest, full(err))
	}
	failpoint.Hit("packages.renamed")
	if err := s.syncFolder(stored); err != nil {
		return Package{}, true, err
	}
	found, err := s.Stat(digest)
	return found, true, err
}

// Ready says what keeps the store from taking a package.
func (s *Store) Ready() error {
	name := path.Join(partial, "ready."+rand.Text())
	file, err := s.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("the folder of packages cannot be written: %w", full(err))
	}
	return errors.Join(file.Close(), s.root.Remove(name))
}

// hashed writes to a file, and to the hash of what is in it. It has no ReadFrom, which would leave the hash out.
type hashed struct {
	file *os.File
	sum  hash.Hash
}

func (h hashed) Write(chunk []byte) (int, error) {
	n, err := h.file.Write(chunk)
	_, _ = h.sum.Write(chunk[:n])
	return n, err
}

// full marks the error of a disk, or of a quota, that has no room.
func full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
