package link

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A key file that is emptied before it is rewritten breaks no request, and is logged once.
func TestReloadedFileKeepsPreviousValue_WhileInvalid(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	var log bytes.Buffer
	write("first")
	key, err := openFiles(slog.New(slog.NewTextHandler(&log, nil)), func() (string, error) {
		return readAPIKey(path)
	}, path)
	require.NoError(t, err)
	write("")
	_, err = key.files.Again()
	require.Error(t, err)
	for range 5 {
		require.Equal(t, "first", key.get())
	}
	require.Equal(t, 1, strings.Count(log.String(), path+" is empty"), log.String())
	write("second")
	require.Eventually(t, func() bool { return key.get() == "second" }, 10*time.Second, 20*time.Millisecond)
}
