package packages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/buckets"
)

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// model is the expected state of a store: a map.
type model struct {
	t     *testing.T
	store *Store
	clock time.Time
	// contents are the bytes of every package that a step may use.
	contents map[string][]byte
	has      map[string]Package
}

func (m *model) step(random *rand.Rand) {
	m.clock = m.clock.Add(time.Duration(random.IntN(5)-1) * time.Second) // a clock may stop, or be set back
	digests := slices.Sorted(maps.Keys(m.contents))
	digest := digests[random.IntN(len(digests))]
	was, exists := m.has[digest]
	switch random.IntN(6) {
	case 0:
		m.put(digest, was, exists)
	case 1:
		_, _, err := m.store.Put(m.t.Context(), digest, strings.NewReader("other bytes"))
		require.ErrorIs(m.t, err, ErrWrongBytes)
	case 2:
		_, _, err := m.store.Put(m.t.Context(), digest,
			io.MultiReader(bytes.NewReader(m.contents[digest][:1]), iotest.ErrReader(io.ErrUnexpectedEOF)))
		require.ErrorIs(m.t, err, io.ErrUnexpectedEOF)
	case 3:
		found, err := m.store.Use(m.t.Context(), digest)
		m.used(digest, was, exists, found, err)
	default:
		m.remove(digest, was, exists, m.clock.Add(time.Duration(random.IntN(5)-2)*time.Second))
	}
}

func (m *model) put(digest string, was Package, exists bool) {
	found, created, err := m.store.Put(m.t.Context(), digest, bytes.NewReader(m.contents[digest]))
	require.NoError(m.t, err)
	require.Equal(m.t, !exists, created)
	if exists {
		m.used(digest, was, exists, found, err)
		return
	}
	m.has[digest] = Package{SHA256: digest, Bytes: int64(len(m.contents[digest])), StoredAt: m.clock, UsedAt: m.clock}
	require.Equal(m.t, m.has[digest], found)
}

func (m *model) used(digest string, was Package, exists bool, found Package, err error) {
	if !exists {
		require.ErrorIs(m.t, err, ErrAbsent)
		return
	}
	require.NoError(m.t, err)
	require.True(m.t, found.UsedAt.After(was.UsedAt),
		"a use is later than the one before, even if the clock was set back")
	require.False(m.t, found.UsedAt.Before(m.clock))
	was.UsedAt = found.UsedAt
	require.Equal(m.t, was, found)
	m.has[digest] = was
}

func (m *model) remove(digest string, was Package, exists bool, since time.Time) {
	err := m.store.Delete(m.t.Context(), digest, since)
	switch {
	case !exists:
		require.ErrorIs(m.t, err, ErrAbsent)
	case !was.UsedAt.Before(since):
		require.ErrorIs(m.t, err, ErrUsed)
	default:
		require.NoError(m.t, err)
		delete(m.has, digest)
	}
}

// compare compares the complete store with the map, through pages of different sizes.
func (m *model) compare(at location) {
	want := slices.SortedFunc(maps.Values(m.has), func(a, b Package) int { return strings.Compare(a.SHA256, b.SHA256) })
	for _, limit := range []int{1, 3, 100} {
		all, after := []Package{}, ""
		for {
			page, next, err := m.store.List(m.t.Context(), limit, after)
			require.NoError(m.t, err)
			require.LessOrEqual(m.t, len(page), limit)
			all, after = append(all, page...), next
			if next == "" {
				break
			}
		}
		require.Equal(m.t, append([]Package{}, want...), all, "pages of %d", limit)
	}
	for digest, content := range m.contents {
		file, _, err := m.store.Open(m.t.Context(), digest)
		if _, exists := m.has[digest]; !exists {
			require.ErrorIs(m.t, err, ErrAbsent)
			continue
		}
		require.NoError(m.t, err)
		have, err := io.ReadAll(file)
		require.NoError(m.t, errors.Join(err, file.Close()))
		require.Equal(m.t, content, have)
	}
	require.Empty(m.t, at.partials(m.t), "failed uploads leave nothing behind")
}

func TestFolderStore_BehavesLikeMap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			testAgainstModel(t, seed, inFolder(t.TempDir()))
		})
	}
}

func TestBucketStore_BehavesLikeMap(t *testing.T) {
	t.Parallel()
	testAgainstModel(t, 1, inBucket(buckets.Start(t)))
}

func testAgainstModel(t *testing.T, seed uint64, at location) {
	random := rand.New(rand.NewPCG(seed, 1))
	m := &model{t: t, clock: time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC), contents: map[string][]byte{},
		has: map[string]Package{}}
	for n := range 6 {
		content := bytes.Repeat([]byte{byte(n), byte(seed)}, 1+random.IntN(2000))
		m.contents[digestOf(content)] = content
	}
	options := Options{Now: func() time.Time { return m.clock }}
	m.store = at.open(t, options)
	for n := range 150 {
		m.step(random)
		if n%25 == 24 {
			m.compare(at)
			require.NoError(t, m.store.Close())
			m.store = at.open(t, options) // a restarted process finds the same packages
			m.compare(at)
		}
	}
}

func TestStore_RefusesInvalidDigests(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s := open(t, filepath.Join(folder, "store"), Options{})
	require.NoError(t, os.WriteFile(filepath.Join(folder, "secret"), []byte("x"), 0o600))
	for _, name := range []string{"", "..", "../../secret", "/etc/passwd", strings.Repeat("A", 64),
		strings.Repeat("a", 63), strings.Repeat("a", 63) + "/",
		strings.Repeat("a", 65), strings.Repeat("a", 32) + "/" + strings.Repeat("a", 31)} {
		_, _, err := s.Open(t.Context(), name)
		require.ErrorIs(t, err, ErrAbsent, name)
		_, _, err = s.Put(t.Context(), name, strings.NewReader("x"))
		require.ErrorContains(t, err, "is no SHA-256", name)
		require.ErrorIs(t, s.Delete(t.Context(), name, time.Now().Add(time.Hour)), ErrAbsent, name)
		_, err = s.Use(t.Context(), name)
		require.ErrorIs(t, err, ErrAbsent, name)
	}
}

func TestPut_WhenUploadedConcurrently(t *testing.T) {
	t.Parallel()
	forEachBackend(t, uploadsAtOnce)
}

func uploadsAtOnce(t *testing.T, at location) {
	content := bytes.Repeat([]byte("package"), 50_000)
	s, digest := at.open(t, Options{}), digestOf(content)
	var group sync.WaitGroup
	var createdCount atomic.Int32
	for n := range 12 {
		group.Go(func() {
			sent := content
			if n%3 == 0 {
				sent = content[:len(content)-1]
			}
			_, created, err := s.Put(t.Context(), digest, iotest.HalfReader(bytes.NewReader(sent)))
			if created {
				createdCount.Add(1)
			}
			if n%3 == 0 && !errors.Is(err, ErrWrongBytes) || n%3 != 0 && err != nil {
				t.Errorf("upload %d: %v", n, err)
			}
			if file, _, err := s.Open(t.Context(), digest); err == nil {
				have, err := io.ReadAll(file)
				if err = errors.Join(err, file.Close()); err != nil || !bytes.Equal(have, content) {
					t.Errorf("upload %d: other bytes were visible (%v)", n, err)
				}
			}
		})
	}
	group.Wait()
	require.EqualValues(t, 1, createdCount.Load(), "one upload creates the package, the others find it")
	require.Empty(t, at.partials(t))
}

func TestReader_SurvivesDeletion(t *testing.T) {
	t.Parallel()
	forEachBackend(t, readerOutlivesDeletion)
}

func readerOutlivesDeletion(t *testing.T, at location) {
	content := bytes.Repeat([]byte("x"), 1<<20)
	s := at.open(t, Options{})
	_, _, err := s.Put(t.Context(), digestOf(content), bytes.NewReader(content))
	require.NoError(t, err)
	file, _, err := s.Open(t.Context(), digestOf(content))
	require.NoError(t, err)
	defer file.Close()
	first := make([]byte, 1000)
	_, err = io.ReadFull(file, first)
	require.NoError(t, err)
	require.NoError(t, s.Delete(t.Context(), digestOf(content), time.Now().Add(time.Hour)))
	rest, err := io.ReadAll(file)
	require.NoError(t, err)
	require.Equal(t, content, append(first, rest...), "a running download gets the complete package")
	_, _, err = s.Put(t.Context(), digestOf(content), bytes.NewReader(content))
	require.NoError(t, err, "the package can be stored again")
}

func TestPut_EnforcesSizeLimit(t *testing.T) {
	t.Parallel()
	forEachBackend(t, testSizeLimit)
}

func testSizeLimit(t *testing.T, at location) {
	s := at.open(t, Options{MaxBytes: 10})
	for size, want := range map[int]error{0: nil, 10: nil, 11: ErrTooLarge, 5000: ErrTooLarge} {
		content := make([]byte, size)
		_, _, err := s.Put(t.Context(), digestOf(content), bytes.NewReader(content))
		require.ErrorIs(t, err, want, "%d bytes", size)
	}
	require.Empty(t, at.partials(t))
}

func TestPut_ReportsFullDisk(t *testing.T) {
	t.Parallel()
	_, _, err := open(t, t.TempDir(), Options{}).Put(t.Context(), digestOf([]byte("a")),
		iotest.ErrReader(&fs.PathError{Op: "write", Path: "a", Err: syscall.ENOSPC}))
	require.ErrorIs(t, err, ErrFull)
}

func TestOpen_RefusesSecondProcess(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	first := open(t, folder, Options{})
	_, err := Open(folder, Options{})
	require.ErrorContains(t, err, "another process serves the packages in "+folder,
		"it would remove the first one's uploads")
	require.NoError(t, first.Ready(t.Context()))
	require.NoError(t, first.Close())
	open(t, folder, Options{})
}

func TestOpen_RemovesLeftoversOfKilledProcess(t *testing.T) {
	t.Parallel()
	folder, content := t.TempDir(), []byte("package")
	s := open(t, folder, Options{})
	_, _, err := s.Put(t.Context(), digestOf(content), bytes.NewReader(content))
	require.NoError(t, err)
	_, err = s.Use(t.Context(), digestOf(content))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	absent := strings.Repeat("0", 64)
	require.NoError(t, os.WriteFile(filepath.Join(folder, partialFolder, absent+".ABC"), []byte("half"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, usedFolder, absent), nil, 0o600))
	s = open(t, folder, Options{})
	require.Empty(t, inFolder(folder).partials(t))
	require.NoFileExists(t, filepath.Join(folder, usedFolder, absent),
		"the time of use of a deleted package is removed")
	found, err := s.backend.stat(t.Context(), digestOf(content))
	require.NoError(t, err)
	require.True(t, found.UsedAt.After(found.StoredAt), "an existing package keeps its time of use")
}

// killingReader kills the process in the middle of an upload.
type killingReader struct{}

func (killingReader) Read([]byte) (int, error) {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// TestPut_WhenProcessIsKilled runs itself again as the child process that is killed.
func TestPut_WhenProcessIsKilled(t *testing.T) {
	content, folder := bytes.Repeat([]byte("package"), 100_000), os.Getenv("PACKAGES_KILLED_FOLDER")
	if folder != "" {
		_, _, _ = open(t, folder, Options{}).Put(t.Context(), digestOf(content),
			io.MultiReader(bytes.NewReader(content[:500_000]), killingReader{}))
		return
	}
	folder = t.TempDir()
	inner := exec.Command(os.Args[0], "-test.run=TestPut_WhenProcessIsKilled$")
	inner.Env = append(os.Environ(), "PACKAGES_KILLED_FOLDER="+folder)
	var exit *exec.ExitError
	require.ErrorAs(t, inner.Run(), &exit)
	require.Len(t, inFolder(folder).partials(t), 1, "the partial upload is left behind")
	s := open(t, folder, Options{})
	require.Empty(t, inFolder(folder).partials(t), "the lock is released, and the folder is cleaned up")
	_, err := s.backend.stat(t.Context(), digestOf(content))
	require.ErrorIs(t, err, ErrAbsent)
	_, created, err := s.Put(t.Context(), digestOf(content), bytes.NewReader(content))
	require.NoError(t, err)
	require.True(t, created)
}

// sum returns the digest of everything that a reader yields.
func sum(from io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, from)
	return hex.EncodeToString(h.Sum(nil)), err
}
