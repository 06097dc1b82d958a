package reload

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFilesAreLoaded_WhenChanged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	loads := 0
	load := func() (string, error) {
		loads++
		text, err := os.ReadFile(path)
		return string(text), err
	}
	files, err := New(load, 0, path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("one"), 0o600))
	for range 3 {
		value, err := files.Get()
		require.NoError(t, err)
		require.Equal(t, "one", value)
	}
	require.Equal(t, 2, loads, "one failed load, one successful")
	require.NoError(t, os.Remove(path))
	value, err := files.Get()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Equal(t, "one", value, "the last value is returned with the error")
	require.NoError(t, os.WriteFile(path, []byte("two"), 0o600))
	value, err = files.Get()
	require.NoError(t, err)
	require.Equal(t, "two", value)
}

func TestValueIsLoaded_WithoutFiles(t *testing.T) {
	t.Parallel()
	files, err := New(func() (string, error) { return "made of nothing", nil }, time.Hour)
	require.NoError(t, err)
	value, err := files.Get()
	require.NoError(t, err)
	require.Equal(t, "made of nothing", value)
}

func TestFilesAreNotChecked_WithinThePause(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("one"), 0o600))
	files, err := New(func() (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	}, time.Hour, path)
	require.NoError(t, err)
	require.NoError(t, errors.Join(os.WriteFile(path+".new", []byte("two"), 0o600), os.Rename(path+".new", path)))
	value, err := files.Get()
	require.NoError(t, err)
	require.Equal(t, "one", value)
	value, err = files.Again()
	require.NoError(t, err)
	require.Equal(t, "two", value, "unless an immediate check is requested")
}
