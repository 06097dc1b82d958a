// Package programs provides third-party programs that tests run: helm, an S3 server, GitOps controllers, OpenKruise's
// manager, the programs of Temporal's images.
package programs

import (
	"encoding/json"
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

// Source returns the folder with the source of a module that a list of deploy/dev/build.sh is built from. It has what
// belongs to a program and is not compiled into it, such as manifests.
func Source(t testing.TB, list, module string) string {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", module)
	download.Dir = filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy/dev", list)
	download.Env = append(os.Environ(), "GOWORK=off")
	out, err := download.Output()
	require.NoError(t, err, "go mod download %s in %s: %s", module, download.Dir, out)
	var found struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &found), "%s", out)
	return found.Dir
}
