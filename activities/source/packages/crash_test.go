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

// The environment of the child process that is killed.
const (
	innerFolder = "PACKAGES_INNER_FOLDER"
	innerBucket = "PACKAGES_INNER_BUCKET"
	innerVerb   = "PACKAGES_INNER_VERB"
)

var crashContent = bytes.Repeat([]byte("package"), 1000)

// crashCase is a process that is killed at a failpoint of an operation. present is true if the package exists
// afterwards.
type crashCase struct {
	reason, point, verb string
	present             bool
}

// TestStore_SurvivesKill runs itself again as the child process that is killed.
func TestStore_SurvivesKill(t *testing.T) {
	if verb := os.Getenv(innerVerb); verb != "" {
		runUntilKilled(t, verb)
		return
	}
	for _, c := range []crashCase{
		{"the bytes are on the disk, not renamed yet", "packages.written", "put", false},
		{"the package is renamed", "packages.renamed", "put", true},
		{"the package is deleted, its time of use is not", "packages.deleted", "delete", false},
	} {
		t.Run("folder "+c.point, func(t *testing.T) {
			folder := t.TempDir()
			c.run(t, inFolder(folder), innerFolder+"="+folder)
		})
	}
	for _, c := range []crashCase{
		{"all parts are sent", "packages.written", "put", false},
		{"its times are recorded", "packages.noted", "put", false},
		{"the upload is completed", "packages.renamed", "put", true},
		{"the removal is announced", "packages.announced", "delete", true},
		{"the package is deleted, its times are not", "packages.deleted", "delete", false},
		{"a use is recorded, and so is the one before", "packages.noted", "use", true},
	} {
		t.Run("bucket "+c.verb+" "+c.point, func(t *testing.T) {
			server := buckets.Start(t)
			c.run(t, inBucket(server), innerBucket+"="+server.URL)
		})
	}
}

// runUntilKilled runs the operation during which the process is killed.
func runUntilKilled(t *testing.T, verb string) {
	s, digest := innerStore(t), digestOf(crashContent)
	switch verb {
	case "put":
		_, _, _ = s.Put(t.Context(), digest, bytes.NewReader(crashContent))
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

func (c crashCase) run(t *testing.T, at location, where string) {
	digest, arm := digestOf(crashContent), filepath.Join(t.TempDir(), "arm")
	if c.verb != "put" {
		s := at.open(t, Options{})
		_, _, err := s.Put(t.Context(), digest, bytes.NewReader(crashContent))
		require.NoError(t, err)
		_, err = s.Use(t.Context(), digest)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
	require.NoError(t, os.WriteFile(arm, fmt.Appendf(nil, `{"name":%q}`, c.point), 0o600))
	inner := exec.Command(os.Args[0], "-test.run=TestStore_SurvivesKill$")
	inner.Env = append(os.Environ(), where, innerVerb+"="+c.verb, "SLIPWAY_FAILPOINTS_FILE="+arm)
	var exit *exec.ExitError
	require.ErrorAs(t, inner.Run(), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())

	// leftovers in a folder are removed at once; those in a bucket might be another process's
	later := time.Now().Add(leftoverAge + time.Hour)
	s := at.open(t, Options{Now: func() time.Time { return later }})
	_, err := s.backend.stat(t.Context(), digest)
	require.Equal(t, c.present, err == nil, c.reason)
	require.Empty(t, at.partials(t))
	_, created, err := s.Put(t.Context(), digest, bytes.NewReader(crashContent))
	require.NoError(t, err, "a repeated upload succeeds")
	require.Equal(t, !c.present, created)
	found, err := s.backend.stat(t.Context(), digest)
	require.NoError(t, err)
	require.Equal(t, c.present, found.UsedAt.After(found.StoredAt),
		"the use of a deleted package does not count for the new one")
}
