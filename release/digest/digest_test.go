package digest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The digests are part of names and labels of stored objects: they never change.
func TestOf(t *testing.T) {
	t.Parallel()
	require.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", Of("abc"))
	require.Equal(t, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", Of())
	require.NotEqual(t, Of("ab", "c"), Of("a", "bc"), "the boundaries of texts count")
	require.Equal(t, Of("a\x00b"), Of("a", "b"))
}

func TestLabel(t *testing.T) {
	t.Parallel()
	fits := strings.Repeat("a", 63)
	require.Equal(t, fits, Label(fits))
	require.Equal(t, Of(fits + "a")[:56], Label(fits+"a"))
}
