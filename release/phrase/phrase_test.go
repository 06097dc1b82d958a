package phrase

import (
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCount(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0 services": Count(0, "service"),
		"1 party":    Count(1, "party"),
		"3 parties":  Count(3, "party"),
		"2 matches":  Count(2, "match"),
		"1 pod is":   CountOf(1, "pod is", "pods are"),
		"2 pods are": CountOf(2, "pod is", "pods are"),
	} {
		require.Equal(t, want, got)
	}
}

func TestList_NamesTheFirst_AndCountsTheOthers(t *testing.T) {
	t.Parallel()
	require.Empty(t, List(nil, 2))
	require.Equal(t, "a", List([]string{"a"}, 2))
	require.Equal(t, "a, b", List([]string{"a", "b"}, 2))
	require.Equal(t, "a, b and 3 more", List([]string{"a", "b", "c", "d", "e"}, 2))
}

func TestTime_IsInUTC(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 1, 12, 0, 0, 999, time.FixedZone("", 7200))
	require.Equal(t, "2026-07-01T10:00:00Z", Time(at))
}

func TestCut(t *testing.T) {
	t.Parallel()
	require.Equal(t, "12345", Cut("12345", 5), "it fits")
	require.Equal(t, "12…", Cut("123456", 5), "the ellipsis has three bytes")
	require.Equal(t, "1…", Cut("1äöü", 5), "ä would be split")
	require.Equal(t, "a b…", Line("  a\n b\tc d e f", 6), "a line has no line breaks")
	rapid.Check(t, func(t *rapid.T) {
		text, most := rapid.String().Draw(t, "text"), rapid.IntRange(3, 50).Draw(t, "most")
		cut := Cut(text, most)
		require.LessOrEqual(t, len(cut), most)
		require.True(t, utf8.ValidString(cut), "no character is split: %q", cut)
		require.True(t, cut == text || strings.HasPrefix(text, strings.TrimSuffix(cut, "…")), "it begins alike")
	})
}

func TestInert(t *testing.T) {
	t.Parallel()
	require.Equal(t, "deploys order (2 of 3) for li@example.org",
		Inert("deploys order (2 of 3) for\nli@example.org", 99))
	require.Equal(t, "!\\[x\\](HTTP:\u2060//a.example) Www\u2060.b.example &lt;img> \\`c\\`",
		Inert("![x](HTTP://a.example) Www.b.example <img> `c`", 99))
	require.Equal(t, "12…", Inert("123456", 5))
}

func TestEach(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"1", "2"}, Each([]int{1, 2}, strconv.Itoa))
	require.Empty(t, Each(nil, strconv.Itoa), "no element has no text")
}
