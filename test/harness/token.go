package harness

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/auth"
)

// Token returns a file with a token, as an API reads it.
func Token(t *testing.T, token string) *auth.TokenFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(token), 0o600))
	file, err := auth.OpenToken("the API of this test", path)
	require.NoError(t, err)
	return file
}
