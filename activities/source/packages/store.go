// Package packages keeps packages of code under the SHA-256 of their bytes, so that pods can download them long after their source is
// gone or has changed: a store in a folder or a bucket, its HTTP server, and a client.
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
	// ErrFull: the store has no room for the package.
	ErrFull = errors.New("the store is full")
	// ErrBusy: another process removes the package from the bucket just now.
	ErrBusy = errors.New("the package is being removed: try again in a minute")
)

// Options are what a store is opened with.
type Options struct {
	// MaxBytes is how large a package may be.
	MaxBytes int64
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// keeper is where the packages of a store are. The digests that it is given are valid, and what makes a package appear, last longer or disappear
// comes one call at a time for each package, as far as this process is concerned.
type keeper interface {
	stat(ctx context.Context, digest string) (Package, error)
	// open also says when the package was stored. Whoever reads it reads on when it is removed.
	open(ctx context.Context, digest string) (io.ReadSeekCloser, time.Time, error)
	// list are the packages after a digest, in the order of their digests, limit of them at most, and what to go on after.
	list(ctx context.Context, limit int, after string) ([]Package, string, error)
	// use notes that a package that is there was used at its UsedAt.
	use(ctx context.Context, found Package) error
	// remove removes a package, if that is allowed by what is known of it at the last moment.
	remove(ctx context.Context, digest string, allowed func(Package) error) error
	// stage takes the bytes of a package in, which nobody sees yet.
	stage(ctx context.Context, digest string, content io.Reader) (staged, error)
	// ready says what keeps packages from being stored.
	ready(ctx context.Context) error
	close() error
}

// staged are the whole bytes of a package, on their way.
type staged interface {
	// appear lets everybody see the package, as one that was stored at that time.
	appear(ctx context.Context, at time.Time) error
	// discard is for bytes that are not to appear. What it leaves is cleared away at a later start.
	discard(ctx context.Context)
}

// Store keeps packages. A package appears whole or not at all.
type Store struct {
	kept keeper
	max  int64
	now  func() time.Time
	// changing orders what makes a package appear, last longer or disappear, by the first two digits of digests. Uploads hold it only once their
	// bytes are there.
	changing [256]sync.Mutex
}

func newStore(kept keeper, options Options) *Store {
	s := &Store{kept: kept, max: options.MaxBytes, now: options.Now}
	if s.now == nil {
		s.now = time.Now
	}
	return s
}

// Close lets another process open the store.
func (s *Store) Close() error { return s.kept.close() }

// Ready says what keeps the store from taking a package.
func (s *Store) Ready(ctx context.Context) error { return s.kept.ready(ctx) }

// ValidDigest says whether the text is a SHA-256 as the store has it: 64 hexadecimal digits in lower case.
func ValidDigest(text string) bool {
	return len(text) == 2*sha256.Size && strings.Trim(text, "0123456789abcdef") == ""
}

// lock waits until nobody else changes a package; the digest is valid.
func (s *Store) lock(digest string) (unlock func()) {
	shard, _ := strconv.ParseUint(digest[:2], 16, 8)
	s.changing[shard].Lock()
	return s.changing[shard].Unlock
}

// Stat is what the store knows of a package.
func (s *Store) Stat(ctx context.Context, digest string) (Package, error) {
	if !ValidDigest(digest) {
		return Package{}, ErrAbsent
	}
	return s.kept.stat(ctx, digest)
}

// Open opens a package, and says when it was stored. Whoever reads it reads on when it is deleted.
func (s *Store) Open(ctx context.Context, digest string) (io.ReadSeekCloser, time.Time, error) {
	if !ValidDigest(digest) {
		return nil, time.Time{}, ErrAbsent
	}
	return s.kept.open(ctx, digest)
}

// List are the packages after a digest, in the order of their digests, limit of them at most. next is the digest to go on after; "" when
// there are no more.
func (s *Store) List(ctx context.Context, limit int, after string) (found []Package, next string, err error) {
	return s.kept.list(ctx, limit, after)
}

// Use notes that a package is used now.
func (s *Store) Use(ctx context.Context, digest string) (Package, error) {
	if !ValidDigest(digest) {
		return Package{}, ErrAbsent
	}
	defer s.lock(digest)()
	return s.use(ctx, digest)
}

func (s *Store) use(ctx context.Context, digest string) (Package, error) {
	found, err := s.kept.stat(ctx, digest)
	if err != nil {
		return Package{}, err
	}
	// A use counts as later than what was seen before it, also by a clock that was set back: a deletion that names what it saw is refused.
	at := s.now().UTC()
	if !at.After(found.UsedAt) {
		at = found.UsedAt.Add(time.Microsecond)
	}
	found.UsedAt = at
	return found, s.kept.use(ctx, found)
}

// Delete removes a package that was neither stored nor used since that time.
func (s *Store) Delete(ctx context.Context, digest string, unusedSince time.Time) error {
	if !ValidDigest(digest) {
		return ErrAbsent
	}
	defer s.lock(digest)()
	return s.kept.remove(ctx, digest, func(found Package) error {
		if found.UsedAt.Before(unusedSince) {
			return nil
		}
		return fmt.Errorf("%w %s, at %s", ErrUsed, unusedSince.Format(time.RFC3339Nano), found.UsedAt.Format(time.RFC3339Nano))
	})
}

// Put stores a package, or notes its use if it is there already. Bytes of another digest are never seen by anybody.
func (s *Store) Put(ctx context.Context, digest string, content io.Reader) (put Package, created bool, err error) {
	if !ValidDigest(digest) {
		return Package{}, false, fmt.Errorf("%q is no SHA-256: want 64 hexadecimal digits in lower case", digest)
	}
	bytes := &checked{from: content, digest: digest, sum: sha256.New(), max: s.max}
	arrived, err := s.kept.stage(ctx, digest, bytes)
	if err != nil {
		return Package{}, false, err
	}
	failpoint.Hit("packages.written")
	defer s.lock(digest)()
	if found, err := s.use(ctx, digest); !errors.Is(err, ErrAbsent) {
		arrived.discard(ctx) // another upload was faster
		return found, false, err
	}
	at := s.now().UTC()
	if err := arrived.appear(ctx, at); err != nil {
		arrived.discard(ctx)
		return Package{}, false, err
	}
	return Package{SHA256: digest, Bytes: bytes.n, StoredAt: at, UsedAt: at}, true, nil
}

func (s *Store) tooLarge() error { return tooLarge(s.max) }

func tooLarge(max int64) error {
	return fmt.Errorf("%w: the store takes %d bytes at most (--package-max-bytes)", ErrTooLarge, max)
}

// checked reads a package. It ends only behind bytes of the right digest: behind others, or too many, it fails.
type checked struct {
	from   io.Reader
	digest string
	sum    hash.Hash
	n, max int64
	err    error
}

func (c *checked) Read(into []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.from.Read(into)
	_, _ = c.sum.Write(into[:n])
	c.n += int64(n)
	switch {
	case c.n > c.max:
		c.err = tooLarge(c.max)
	case errors.Is(err, io.EOF):
		c.err = c.ended()
	case err != nil:
		// Wrapped, so that nobody who reads by the piece takes a broken body for a short last piece.
		c.err = fmt.Errorf("package %s cannot be read: %w", c.digest, err)
	}
	return n, c.err
}

func (c *checked) ended() error {
	if have := hex.EncodeToString(c.sum.Sum(nil)); have != c.digest {
		return fmt.Errorf("%w: these %d bytes have the SHA-256 %s, and were sent as %s", ErrWrongBytes, c.n, have, c.digest)
	}
	return io.EOF
}
