// Package packages keeps packages of code under the SHA-256 of their bytes, so that pods can download them even after
// their source was deleted or has changed. It contains a store in a folder or a bucket, its HTTP server, and a client.
package packages

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway.io/slipway/activities/source/space"
	"slipway.io/slipway/api/client"
	"slipway.io/slipway/failpoint"
)

// Package is the metadata of one package.
type Package = client.StoredPackage

// Errors of the store.
var (
	// ErrAbsent: the store has no such package.
	ErrAbsent = errors.New("the store has no such package")
	// ErrUsed: the package was stored or used since the unusedSince of the deletion.
	ErrUsed = errors.New("the package was stored or used since")
	// ErrWrongBytes: the bytes have another digest than the one under which they were sent.
	ErrWrongBytes = errors.New("the bytes have another digest")
	// ErrTooLarge: the package exceeds the store's limit.
	ErrTooLarge = errors.New("the package is too large")
	// ErrFull: the store has no space for the package.
	ErrFull = errors.New("the store is full")
	// ErrBusy: another process is just removing the package from the bucket.
	ErrBusy = errors.New("the package is being removed: try again in a minute")
	// ErrUploads: the uploads of others take all temporary space.
	ErrUploads = errors.New("too much is being uploaded at once: try again in a minute")
)

// Options configure a store.
type Options struct {
	// MaxBytes is the largest size of a package.
	MaxBytes int64
	// TempBytes bounds the bytes of all uploads to a folder together; 0: it does not. Those to a bucket need no disk.
	TempBytes int64
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// backend keeps the packages of a store. Its callers pass valid digests only. For each package, this process makes at
// most one modifying call (use, remove, publish) at a time.
type backend interface {
	stat(ctx context.Context, digest string) (Package, error)
	// open also returns when the package was stored. Reading continues to work after the package was removed.
	open(ctx context.Context, digest string) (io.ReadSeekCloser, time.Time, error)
	// list returns up to limit packages behind a digest, ordered by digest, and the digest to continue behind.
	list(ctx context.Context, limit int, after string) ([]Package, string, error)
	// use records that an existing package was used at its UsedAt.
	use(ctx context.Context, found Package) error
	// remove removes a package if allowed accepts its state at the last moment.
	remove(ctx context.Context, digest string, allowed func(Package) error) error
	// stage receives the bytes of a package, which is not visible yet.
	stage(ctx context.Context, digest string, content io.Reader) (staged, error)
	// ready returns the reason why packages cannot be stored.
	ready(ctx context.Context) error
	close() error
}

// staged is a package whose bytes have all arrived, but which is not visible yet.
type staged interface {
	// publish makes the package visible, as stored at that time.
	publish(ctx context.Context, at time.Time) error
	// discard drops the bytes. If it fails, leftovers are removed at a later start.
	discard(ctx context.Context)
}

// Store keeps packages. A package is visible completely or not at all.
type Store struct {
	backend backend
	max     int64
	now     func() time.Time
	// space is for uploads; nil: they need none.
	space *space.Space
	// locks serialise modifications of a package, sharded by the first two digits of the digest. An upload takes its
	// lock only after its bytes have arrived.
	locks [256]sync.Mutex
}

func newStore(kept backend, options Options) *Store {
	s := &Store{backend: kept, max: options.MaxBytes, now: options.Now}
	if s.now == nil {
		s.now = time.Now
	}
	return s
}

// Close releases the store, so that another process can open it.
func (s *Store) Close() error { return s.backend.close() }

// Ready returns the reason why the store cannot take packages.
func (s *Store) Ready(ctx context.Context) error { return s.backend.ready(ctx) }

// ValidDigest reports whether a text is a SHA-256: 64 hexadecimal digits in lower case.
func ValidDigest(text string) bool {
	return len(text) == 2*sha256.Size && strings.Trim(text, "0123456789abcdef") == ""
}

// lock locks the shard of a package against other modifications; the digest must be valid.
func (s *Store) lock(digest string) (unlock func()) {
	shard, _ := strconv.ParseUint(digest[:2], 16, 8)
	s.locks[shard].Lock()
	return s.locks[shard].Unlock
}

// Open opens a package, and returns when it was stored. Reading continues to work after the package was deleted.
func (s *Store) Open(ctx context.Context, digest string) (io.ReadSeekCloser, time.Time, error) {
	if !ValidDigest(digest) {
		return nil, time.Time{}, ErrAbsent
	}
	return s.backend.open(ctx, digest)
}

// List returns up to limit packages behind after, ordered by digest. next is the value of after for the next page, ""
// on the last one.
func (s *Store) List(ctx context.Context, limit int, after string) (found []Package, next string, err error) {
	return s.backend.list(ctx, limit, after)
}

// Use records that a package is used now.
func (s *Store) Use(ctx context.Context, digest string) (Package, error) {
	if !ValidDigest(digest) {
		return Package{}, ErrAbsent
	}
	defer s.lock(digest)()
	return s.use(ctx, digest)
}

func (s *Store) use(ctx context.Context, digest string) (Package, error) {
	found, err := s.backend.stat(ctx, digest)
	if err != nil {
		return Package{}, err
	}
	// A use always gets a later time than the one before, even if the clock was set back, so that a deletion based on
	// the earlier time is refused.
	at := s.now().UTC()
	if !at.After(found.UsedAt) {
		at = found.UsedAt.Add(time.Microsecond)
	}
	found.UsedAt = at
	return found, s.backend.use(ctx, found)
}

// Delete removes a package that was neither stored nor used since unusedSince.
func (s *Store) Delete(ctx context.Context, digest string, unusedSince time.Time) error {
	if !ValidDigest(digest) {
		return ErrAbsent
	}
	defer s.lock(digest)()
	return s.backend.remove(ctx, digest, func(found Package) error {
		if found.UsedAt.Before(unusedSince) {
			return nil
		}
		return fmt.Errorf("%w %s, at %s", ErrUsed, unusedSince.Format(time.RFC3339Nano),
			found.UsedAt.Format(time.RFC3339Nano))
	})
}

// Put stores a package, or records its use if it already exists. Bytes of another digest never become visible.
func (s *Store) Put(ctx context.Context, digest string, content io.Reader) (put Package, created bool, err error) {
	if !ValidDigest(digest) {
		return Package{}, false, fmt.Errorf("%q is no SHA-256: want 64 hexadecimal digits in lower case", digest)
	}
	bytes := &verifyingReader{from: content, digest: digest, sum: sha256.New(), max: s.max, space: s.space}
	defer bytes.free()
	upload, err := s.backend.stage(ctx, digest, bytes)
	if err != nil {
		return Package{}, false, err
	}
	failpoint.Hit("packages.written")
	defer s.lock(digest)()
	if found, err := s.use(ctx, digest); !errors.Is(err, ErrAbsent) {
		upload.discard(ctx) // another upload was faster
		return found, false, err
	}
	at := s.now().UTC()
	if err := upload.publish(ctx, at); err != nil {
		upload.discard(ctx)
		return Package{}, false, err
	}
	return Package{SHA256: digest, Bytes: bytes.n, StoredAt: at, UsedAt: at}, true, nil
}

func (s *Store) tooLarge() error { return tooLarge(s.max) }

func tooLarge(max int64) error {
	return fmt.Errorf("%w: the store takes %d bytes at most (--package-max-bytes)", ErrTooLarge, max)
}

// verifyingReader reads a package. It returns io.EOF only after bytes of the right digest, and an error after others or
// too many.
type verifyingReader struct {
	from   io.Reader
	digest string
	sum    hash.Hash
	n, max int64
	// space is where the bytes are written; nil: it is not bounded.
	space *space.Space
	taken int64
	err   error
}

// take takes space for bytes that have been read.
func (c *verifyingReader) take(bytes int64) error {
	if c.space == nil || bytes == 0 {
		return nil
	}
	if err := c.space.Take(bytes); err != nil {
		return fmt.Errorf("%w: %w", ErrUploads, err)
	}
	c.taken += bytes
	return nil
}

// free gives the space back, once the package is complete or removed.
func (c *verifyingReader) free() {
	if c.space != nil {
		c.space.Give(c.taken)
	}
}

func (c *verifyingReader) Read(into []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.from.Read(into)
	_, _ = c.sum.Write(into[:n])
	c.n += int64(n)
	taken := c.take(int64(n))
	switch {
	case c.n > c.max:
		c.err = tooLarge(c.max)
	case taken != nil:
		c.err = taken
	case errors.Is(err, io.EOF):
		c.err = io.EOF
		if have := hex.EncodeToString(c.sum.Sum(nil)); have != c.digest {
			c.err = fmt.Errorf("%w: these %d bytes have the SHA-256 %s, and were sent as %s", ErrWrongBytes, c.n, have,
				c.digest)
		}
	case err != nil:
		// Wrapped, so that a reader of parts does not mistake io.ErrUnexpectedEOF for a short last part.
		c.err = fmt.Errorf("package %s cannot be read: %w", c.digest, err)
	}
	return n, c.err
}
