package strictyaml

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptionalAndLooseValues(t *testing.T) {
	t.Parallel()
	root, found, ok := Parse([]byte("null1:\nempty: {}\nyes: true\nnumber: 5\ntext: 5%\nmap: {a: b, c: ''}\n"))
	require.True(t, ok)
	m := root.Mapping("null1", "empty", "yes", "number", "text", "map", "missing")
	require.False(t, m.Optional("null1").Present(), "a key without a value counts as absent")
	require.False(t, m.Optional("missing").Present())
	require.True(t, m.Optional("empty").IsEmptyMapping())
	require.False(t, m.Optional("map").IsEmptyMapping())
	require.True(t, m.Optional("yes").Bool())
	number, _, isText := m.Optional("number").NumberOrText(0, 9)
	require.Equal(t, int64(5), number)
	require.False(t, isText)
	_, text, isText := m.Optional("text").NumberOrText(0, 9)
	require.Equal(t, "5%", text)
	require.True(t, isText)
	require.Equal(t, map[string]string{"a": "b", "c": ""}, m.Optional("map").StringMap())
	require.True(t, root.Has("empty"))
	require.False(t, root.Has("missing"))
	require.Empty(t, found.Sorted())
}

func TestLooseValues_RejectOtherTypes(t *testing.T) {
	t.Parallel()
	root, found, ok := Parse([]byte("a: 'true'\nb: x\nc: {k: 1}\nd: {k: [v]}\ne: &anchor\nf: 12\n"))
	require.True(t, ok)
	m := root.Mapping("a", "b", "c", "d", "e", "f")
	m.Optional("a").Bool()
	require.Nil(t, m.Optional("b").StringMap())
	m.Optional("c").StringMap()
	m.Optional("d").StringMap()
	m.Optional("e").Bool()
	m.Optional("f").NumberOrText(0, 9)
	var got []string
	for _, one := range found.Sorted() {
		got = append(got, one.Error())
	}
	require.Equal(t, []string{
		`line 1, a: must be true or false, not the text "true"`,
		`line 2, b: must be a mapping of texts, not the text "x"`,
		"line 3, c.k: must be text, not the number 1: put it in quotes",
		"line 4, d.k: must be text, not a list",
		"line 5, e: has an anchor (&anchor), which is not supported: write the value without it",
		"line 6, f: must be from 0 to 9, not 12",
	}, got)
}
