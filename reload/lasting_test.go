package reload

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A key file that is emptied before it is rewritten breaks no request, and is logged once.
func TestLasting_KeepsPreviousValue_WhileInvalid(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	load := func() (string, error) {
		text, err := os.ReadFile(path)
		if err == nil && len(text) == 0 {
			err = errors.New(path + " is empty")
		}
		return string(text), err
	}
	var log bytes.Buffer
	write("first")
	key, err := NewLasting("a key", slog.New(slog.NewTextHandler(&log, nil)), load, time.Second, path)
	require.NoError(t, err)
	write("")
	_, err = key.files.Again()
	require.Error(t, err)
	for range 5 {
		require.Equal(t, "first", key.Get())
	}
	require.Equal(t, 1, strings.Count(log.String(), path+" is empty"), log.String())
	write("second")
	require.Eventually(t, func() bool { return key.Get() == "second" }, 10*time.Second, 20*time.Millisecond)
}
