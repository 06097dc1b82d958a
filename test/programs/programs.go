// Package programs has the programs of others that tests run: helm, a server of S3, GitOps controllers, those of Temporal's images.
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

// builds has a func() error for each list that a test of this process has asked for.
var builds sync.Map

// Folder returns where the programs of a list of deploy/dev/build.sh are, such as "helm", and builds those that are missing. A run of all tests
// (deploy/dev/test.sh) has built them before it starts the first test. Without the local stack the test is skipped, since they are built with it.
func Folder(t testing.TB, list string) string {
	t.Helper()
	if os.Getenv("SLIPWAY_TEST_STACK") == "" {
		t.Skip("needs what the local stack is built with: run it by `make test`")
	}
	build, _ := builds.LoadOrStore(list, sync.OnceValue(func() error {
		out, err := exec.Command(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy/dev/build.sh"), list).CombinedOutput()
		if err != nil {
			return fmt.Errorf("build.sh %s: %w: %s", list, err, out)
		}
		return nil
	}))
	require.NoError(t, build.(func() error)())
	return os.Getenv("SLIPWAY_TEST_BIN")
}
