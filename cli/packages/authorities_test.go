package packages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/test/harness"
)

// TestAuthorities_AreReadAgain: the CAs become a part of pod templates, and what else is in their file does not.
func TestAuthorities_AreReadAgain(t *testing.T) {
	t.Parallel()
	first, second := harness.NewAuthority(t), harness.NewAuthority(t)
	_, key := first.Issue()
	path := filepath.Join(t.TempDir(), "ca.pem")
	put := func(files ...string) {
		all := ""
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			all += "# a comment\n" + string(text)
		}
		require.NoError(t, os.WriteFile(path, []byte(all), 0o600))
	}
	s := settings.Settings{PackageStoreCAFile: path}
	_, err := OpenAuthorities(s, nil)
	require.ErrorContains(t, err, "--package-store-ca-file")
	put(key)
	_, err = OpenAuthorities(s, nil)
	require.ErrorContains(t, err, "holds no certificate in PEM form")

	put(key, first.File)
	current, err := OpenAuthorities(s, nil)
	require.NoError(t, err)
	text, err := os.ReadFile(first.File)
	require.NoError(t, err)
	require.Equal(t, string(text), current().PEM, "neither the key nor the comments")
	pool := current().Pool
	require.Same(t, pool, current().Pool, "connections are kept")
	put(first.File, second.File)
	require.Equal(t, 2, strings.Count(current().PEM, "BEGIN CERTIFICATE"), "without a restart")

	many := make([]string, 100)
	for n := range many {
		many[n] = first.File
	}
	put(many...)
	require.Equal(t, 2, strings.Count(current().PEM, "BEGIN CERTIFICATE"), "too many for pod templates")
	none, err := OpenAuthorities(settings.Settings{}, nil)
	require.NoError(t, err)
	require.Nil(t, none)
}
