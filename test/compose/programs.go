package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// moduleFolder returns the source folder of a module from which the programs are built.
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
