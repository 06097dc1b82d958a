package strictyaml

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// nodesOf returns the number of nodes that the YAML library makes of a text; 0 if it does not accept it.
func nodesOf(text []byte) (nodes int) {
	var count func(*yaml.Node)
	count = func(node *yaml.Node) {
		nodes++
		for _, child := range node.Content {
			count(child)
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); err != nil {
			if err.Error() == "EOF" {
				return nodes
			}
			return 0
		}
		count(&document)
	}
}

// tails are the ends of hostile documents: many values, for a scanner that takes the text before for the beginning of a
// scalar.
var tails = []string{
	strings.Repeat("a, ", 200) + "]", strings.Repeat("a, ", 200) + "}", strings.Repeat("\n- a", 200),
	"\n" + strings.Repeat("? a\n", 200), "\nb: [" + strings.Repeat("a, ", 200) + "]",
	"\n  - [" + strings.Repeat("a, ", 200) + "]", "\n    b: [" + strings.Repeat("a, ", 200) + "]",
	"\n\"b\": [" + strings.Repeat("a, ", 200) + "]", "]\n- [" + strings.Repeat("a, ", 200) + "]",
	"'\n- [" + strings.Repeat("a, ", 200) + "]", "\"\n, " + strings.Repeat("a, ", 200) + "]",
	"\n...\n[" + strings.Repeat("a, ", 200) + "]", "}\nb: [" + strings.Repeat("a, ", 200) + "]",
}

// nodesOfToken is the maximum number of nodes that the YAML library makes of a token: a ":" between brackets may be a
// mapping with an empty key and an empty value.
const nodesOfToken = 3

// checkCount fails if the library makes more nodes of a text than the scanner's tokens allow.
func checkCount(t *testing.T, text []byte) {
	t.Helper()
	for _, tail := range tails {
		whole := append(bytes.Clone(text), tail...)
		if nodes := nodesOf(whole); nodes >= 200 {
			require.True(t, exceedsTokens(whole, nodes/nodesOfToken), "%d nodes: %q", nodes, whole)
			require.True(t, exceedsTokens(whole, 199), "each of the values is a token: %q", whole)
		}
	}
}

// pieces are what random documents are made of.
var pieces = []string{"a", "b", ": ", ":", "- ", "-", "? ", "?", ", ", ",", "[", "]", "{", "}", "'", "\"", "''", "\\",
	"\\\"", "#", " #", "&a ", "*a ", "!t ", "!<x> ", "!'", "\n", "\n", "\n  ", "\n ", "\n- ", "\n  - ", "\r\n", "\r",
	"\t", " ", "  ", "---", "\n---\n", "...", "\n...\n", "%", "x: ", "\nx: ", "y: '", "z: \"", ">", ">-\n", ">2\n",
	": >+1\n   ", "@", "`", "é", "\u2028", "\u0085", "\ufeff", "~", "1", "\n\t", "<<: ", "|\n  ", "|\n  ", "x: |\n  ",
	"\n'b': ", "\n\"c\": ", "\n{d: e}: ", "- - ", "? - "}

func TestScanner_CountsWhatTheLibraryReads(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2_000 {
		var text strings.Builder
		for range 1 + random.IntN(12) {
			text.WriteString(pieces[random.IntN(len(pieces))])
		}
		checkCount(t, []byte(text.String()))
	}
}

func FuzzScanner(f *testing.F) {
	for _, piece := range pieces {
		f.Add([]byte("a: " + piece + "\n- "))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkCount(t, text) })
}
