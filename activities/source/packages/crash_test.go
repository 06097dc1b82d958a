//go:build failpoints

package packages

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/buckets"
)

// The environment of the process that is killed.
const (
	innerFolder = "PACKAGES_INNER_FOLDER"
	innerBucket = "PACKAGES_INNER_BUCKET"
	innerVerb   = "PACKAGES_INNER_VERB"
)

var crashing = bytes.Repeat([]byte("package"), 1000)

// killed is a process that dies at a point of a verb. there says whether the package is there afterwards.
type killed struct {
	reason, point, verb string
	there               bool
}

// TestKilledAnywhere is run again as the process that is killed.
func TestKilledAnywhere(t *testing.T) {
	if verb := os.Getenv(innerVerb); verb != "" {
		die(t, verb)
		return
	}
	for _, c := range []killed{
		{"the bytes are on the disk, without a name", "packages.written", "put", false},
		{"the package has its name", "packages.renamed", "put", true},
		{"the package is gone, its use is not", "packages.deleted", "delete", false},
	} {
		t.Run("folder "+c.point, func(t *testing.T) {
			folder := t.TempDir()
			c.play(t, inFolder(folder), innerFolder+"="+folder)
		})
	}
	for _, c := range []killed{
		{"all pieces are there", "packages.written", "put", false},
		{"its times are there", "packages.noted", "put", false},
		{"the package is there", "packages.renamed", "put", true},
		{"the removal is announced", "packages.announced", "delete", true},
		{"the package is gone, its times are not", "packages.deleted", "delete", false},
		{"a use is noted, and the one before it too", "packages.noted", "use", true},
	} {
		t.Run("bucket "+c.verb+" "+c.point, func(t *testing.T) {
			server := buckets.Start(t)
			c.play(t, inBucket(server), innerBucket+"="+server.URL)
		})
	}
}

// die does what the process is killed at.
func die(t *testing.T, verb string) {
	s, digest := innerStore(t), digestOf(crashing)
	switch verb {
	case "put":
		_, _, _ = s.Put(t.Context(), digest, bytes.NewReader(crashing))
	case "delete":
		_ = s.Delete(t.Context(), digest, time.Now().Add(time.Hour))
	case "use":
		_, _ = s.Use(t.Context(), digest)
	}
}

func innerStore(t *testing.T) *Store {
	if url := os.Getenv(innerBucket); url != "" {
		return openBucket(t, &buckets.Server{URL: url}, Options{})
	}
	return open(t, os.Getenv(innerFolder), Options{})
}

func (c killed) play(t *testing.T, at place, where string) {
	digest, arm := digestOf(crashing), filepath.Join(t.TempDir(), "arm")
	if c.verb != "put" {
		s := at.open(t, Options{})
		_, _, err := s.Put(t.Context(), digest, bytes.NewReader(crashing))
		require.NoError(t, err)
		_, err = s.Use(t.Context(), digest)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
	require.NoError(t, os.WriteFile(arm, fmt.Appendf(nil, `{"name":%q}`, c.point), 0o600))
	inner := exec.Command(os.Args[0], "-test.run=TestKilledAnywhere$")
	inner.Env = append(os.Environ(), where, innerVerb+"="+c.verb, "SLIPWAY_FAILPOINTS_FILE="+arm)
	var exit *exec.ExitError
	require.ErrorAs(t, inner.Run(), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())

	later := time.Now().Add(leftTime + time.Hour) // a folder is cleared at once; what is left in a bucket might be another process's
	s := at.open(t, Options{Now: func() time.Time { return later }})
	_, err := s.Stat(t.Context(), digest)
	require.Equal(t, c.there, err == nil, c.reason)
	require.Empty(t, at.partials(t))
	_, created, err := s.Put(t.Context(), digest, bytes.NewReader(crashing))
	require.NoError(t, err, "whoever sends it again succeeds")
	require.Equal(t, !c.there, created)
	found, err := s.Stat(t.Context(), digest)
	require.NoError(t, err)
	require.Equal(t, c.there, found.UsedAt.After(found.StoredAt), "no use of a deleted package is taken for one of its successor")
}
