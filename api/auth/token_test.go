package auth

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoadToken_CreatesOneToken_WhenCalledConcurrently(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	var group sync.WaitGroup
	tokens := make([]Token, 8)
	for n := range tokens {
		group.Go(func() {
			token, err := LoadToken("this API", path)
			if err == nil {
				tokens[n] = token
			}
		})
	}
	group.Wait()
	for _, token := range tokens {
		require.Len(t, string(token), tokenLength)
		require.Equal(t, tokens[0], token, "servers that start concurrently share the token")
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm(), "only the owner can read it")
	for text, want := range map[string]string{secret + "\n": "begins or ends with a blank or a new line",
		secret[:tokenLength-1]: "holds a token of 31 characters, which could be guessed: write one of at least 32"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err = LoadToken("this API", path)
		require.ErrorContains(t, err, "the token file of this API, "+path+", "+want)
	}
}

func TestTokenFile_IsReadAgain_WhenChanged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	reads := 0
	file, err := NewTokenFile(path, func() (Token, error) {
		reads++
		return ReadToken("--token-file", path)
	})
	require.ErrorContains(t, err, "--token-file: open "+path, "a missing file is a configuration error")
	show := func(content string, mode func(string, []byte) error) (Token, error) {
		require.NoError(t, mode(path, []byte(content)))
		return file.Token()
	}
	inPlace := func(path string, text []byte) error { return os.WriteFile(path, text, 0o600) }
	byRename := func(path string, text []byte) error {
		return errors.Join(os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path))
	}
	token, err := show("first\n", inPlace)
	require.NoError(t, err)
	require.Equal(t, Token("first"), token, "a trailing new line is not part of the token")
	reads = 0
	for range 3 {
		_, err = file.Token()
		require.NoError(t, err)
	}
	require.Zero(t, reads, "an unchanged file is not read again")
	token, err = show("other", byRename)
	require.NoError(t, err)
	require.Equal(t, Token("other"), token, "Kubernetes updates files of a Secret by rename")
	_, err = show("", inPlace)
	require.ErrorContains(t, err, "is empty")
	_, err = file.Token()
	require.Error(t, err, "a removed token remains removed")
	token, err = show("third", inPlace)
	require.NoError(t, err)
	require.Equal(t, Token("third"), token)
}
