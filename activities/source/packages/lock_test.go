//go:build unix

package packages

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that is just being started (between fork and exec) holds all open files of its parent.
func TestUnlockFile_WhenChildStillHoldsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		return file
	}
	first := open()
	require.NoError(t, lockFile(first))
	child, err := syscall.Dup(int(first.Fd()))
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Close(child)) }()
	second := open()
	defer func() { require.NoError(t, second.Close()) }()
	require.Error(t, lockFile(second), "the first holder has the lock")
	require.NoError(t, unlockFile(first))
	require.NoError(t, first.Close())
	require.NoError(t, lockFile(second))
}
