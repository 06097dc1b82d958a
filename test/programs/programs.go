// Package programs provides third-party programs that tests run: helm, an S3 server, GitOps controllers, the programs
// of Temporal's images.
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// builds holds a func() error for each list that a test of this process has requested.
var builds sync.Map

// Folder returns the folder of the programs of a list in deploy/dev/build.sh, such as "helm", and builds missing ones.
// A run of all tests (deploy/dev/test.sh) has built them before the first test starts. Without the local stack the test
// is skipped.
func Folder(t testing.TB, list string) string {
	t.Helper()
	if os.Getenv("SLIPWAY_TEST_STACK") == "" {
		t.Skip("needs programs that are built with the local stack: run it by `make test`")
	}
	build, _ := builds.LoadOrStore(list, sync.OnceValue(func() error {
		out, err := exec.Command(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy/dev/build.sh"),
			list).CombinedOutput()
		if err != nil {
			return fmt.Errorf("build.sh %s: %w: %s", list, err, out)
		}
		return nil
	}))
	require.NoError(t, build.(func() error)())
	return os.Getenv("SLIPWAY_TEST_BIN")
}
