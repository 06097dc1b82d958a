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
)

// The environment of the process that is killed.
const (
	innerFolder = "PACKAGES_INNER_FOLDER"
	innerVerb   = "PACKAGES_INNER_VERB"
)

var crashing = bytes.Repeat([]byte("package"), 1000)

// TestKilledAnywhere is run again as the process that is killed.
func TestKilledAnywhere(t *testing.T) {
	if folder := os.Getenv(innerFolder); folder != "" {
		s := open(t, folder, Options{})
		if os.Getenv(innerVerb) == "put" {
			_, _, _ = s.Put(digestOf(crashing), bytes.NewReader(crashing))
		} else {
			_ = s.Delete(digestOf(crashing), time.Now().Add(time.Hour))
		}
		return
	}
	for point, c := range map[string]struct {
		reason, verb string
		there        bool
	}{
		"packages.written": {"the bytes are on the disk, without a name", "put", false},
		"packages.renamed": {"the package has its name", "put", true},
		"packages.deleted": {"the package is gone, its use is not", "delete", false},
	} {
		t.Run(point, func(t *testing.T) {
			folder, arm := t.TempDir(), filepath.Join(t.TempDir(), "arm")
			if c.verb == "delete" {
				s := open(t, folder, Options{})
				_, _, err := s.Put(digestOf(crashing), bytes.NewReader(crashing))
				require.NoError(t, err)
				_, err = s.Use(digestOf(crashing))
				require.NoError(t, err)
				require.NoError(t, s.Close())
			}
			require.NoError(t, os.WriteFile(arm, fmt.Appendf(nil, `{"name":%q}`, point), 0o600))
			inner := exec.Command(os.Args[0], "-test.run=TestKilledAnywhere$")
			inner.Env = append(os.Environ(), innerFolder+"="+folder, innerVerb+"="+c.verb, "SLIPWAY_FAILPOINTS_FILE="+arm)
			var exit *exec.ExitError
			require.ErrorAs(t, inner.Run(), &exit)
			require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())

			s := open(t, folder, Options{})
			_, err := s.Stat(digestOf(crashing))
			require.Equal(t, c.there, err == nil, c.reason)
			require.Empty(t, partials(t, folder))
			_, created, err := s.Put(digestOf(crashing), bytes.NewReader(crashing))
			require.NoError(t, err, "whoever sends it again succeeds")
			require.Equal(t, !c.there, created)
			found, err := s.Stat(digestOf(crashing))
			require.NoError(t, err)
			require.Equal(t, c.there, found.UsedAt.After(found.StoredAt), "no use of a deleted package is taken for one of its successor")
		})
	}
}
