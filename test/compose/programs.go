package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Programs builds what the images of Temporal run, unless it is there, and returns the folder.
func Programs(t *testing.T) string {
	t.Helper()
	build := exec.Command(filepath.Join(root(t), "deploy/dev/build.sh"), "compose")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(root(t), ".dev/bin")
}

// moduleFolder is where the source of a module is that the programs are built from.
func moduleFolder(t *testing.T, module string) string {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Dir = filepath.Join(root(t), "deploy/compose/programs")
	list.Env = append(os.Environ(), "GOWORK=off")
	out, err := list.Output()
	require.NoError(t, err)
	folder := strings.TrimSpace(string(out))
	require.DirExists(t, folder)
	return folder
}
