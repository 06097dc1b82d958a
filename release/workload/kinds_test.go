package workload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A kind with a gap would fail at its first release: here it fails at once.
func TestKinds_AreComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range Kinds {
		require.False(t, k.Resource.Empty(), k.Key())
		for _, name := range []string{k.Key(), k.Resource.GroupResource().String(), k.Word(), k.Short} {
			require.NotEmpty(t, name, k.Key())
			require.False(t, seen[name], "%s names two kinds", name)
			seen[name] = true
		}
		require.Contains(t, k.Styles, StylePartition, k.Key())
		require.NotEmpty(t, k.Means, k.Key())
		require.NotEmpty(t, k.Pointer, k.Key())
		require.NotNil(t, k.Value, k.Key())
		require.NotEmpty(t, k.Revisions, k.Key())
		require.NotEmpty(t, k.RevisionLabel, k.Key())
		require.NotEmpty(t, k.UpdatedField, k.Key())
		require.Equal(t, k.Key(), ByWord(k.Word()).Key(), "its word names it")
		require.Equal(t, k.Key(), ByWord(k.Resource.GroupResource().String()).Key(), "and so does kubectl's name")
	}
	require.False(t, ByWord("pod").Known())
	require.False(t, Of("example.org/v1", "Deployment").Known(), "of another group")
}

func TestJoin(t *testing.T) {
	t.Parallel()
	require.Empty(t, Join(nil, " and "))
	require.Equal(t, "a", Join([]string{"a"}, " and "))
	require.Equal(t, "a and b", Join([]string{"a", "b"}, " and "))
	require.Equal(t, "a, b or c", Join([]string{"a", "b", "c"}, " or "))
}
