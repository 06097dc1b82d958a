package reload

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFilesAreLoadedWhenTheyHaveChanged(t *testing.T) {
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
	require.Equal(t, 2, loads, "once in vain, then once")
	require.NoError(t, os.Remove(path))
	value, err := files.Get()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Equal(t, "one", value, "what was read last is told beside the error")
	require.NoError(t, os.WriteFile(path, []byte("two"), 0o600))
	value, err = files.Get()
	require.NoError(t, err)
	require.Equal(t, "two", value)
}

func TestWithoutFilesThereIsAValueAllTheSame(t *testing.T) {
	t.Parallel()
	files, err := New(func() (string, error) { return "made of nothing", nil }, time.Hour)
	require.NoError(t, err)
	value, err := files.Get()
	require.NoError(t, err)
	require.Equal(t, "made of nothing", value)
}

func TestFilesAreNotLookedAtBeforeThePauseIsOver(t *testing.T) {
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
	require.Equal(t, "two", value, "unless that is asked for")
}
