package strictyaml

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse_Fails_UnlessOneValidDocument(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text string
		line         int
		contains     string
	}{
		"Empty":        {"nothing was sent", "", 1, "is empty"},
		"CommentsOnly": {"comments are no document", "# nothing\n\n", 1, "is empty"},
		"NullDocument": {"a document marker alone is empty", "---\n", 1, "is empty"},
		"JSONNull":     {"JSON's null is empty", "null", 1, "is empty"},
		"TwoDocuments": {"the second would be ignored", "a: 1\n---\nb: 2\n", 2, "second document"},
		"AfterTheEnd":  {"text after \"...\" would be ignored", "a: 1\n...\nb: 2\n", 3, "continues after the end"},
		"EmptySecond":  {"a trailing marker begins a second document", "a: 1\n---\n", 2, "second document"},
		"Tab":          {"a tab is no indentation", "a:\n  b: 1\n\tc: 2\n", 3, "indented with a tab"},
		"Colon":        {"two colons in one line", "a: 1\nb: c: d\n", 2, "not valid YAML: mapping values"},
		"Dedent": {"the faulty line is named, not the start of its block", "a: 1\nb:\n   - c: 1\n  d: 2\n", 4,
			"not valid YAML"},
		"NoColon":          {"a key without a value", "a: 1\nb\nc: 2\n", 2, "could not find expected ':'"},
		"OpenQuote":        {"the quote that is never closed", "a: 1\nb: 'x\nc: 1\n", 2, "unexpected end of stream"},
		"OpenBracket":      {"the bracket that is never closed", "a: 1\nb: [1,\nc: 1\n", 3, "not valid YAML"},
		"UnknownAlias":     {"an alias of nothing", "a: 1\nb: *c\n", 2, "unknown anchor"},
		"ControlCharacter": {"an invisible character", "a: 1\nb: \x01\n", 2, "control characters"},
		"NotUTF8":          {"another encoding", "a: 1\nb: \xe9\n", 2, "not UTF-8"},
		"TooLarge": {"no Kubernetes object can store it", "a: " + strings.Repeat("x", maxBytes), 1,
			"is too large: 1572867 bytes, of at most 1572864"},
		"HalfJSON": {"JSON without its end", "{\"a\": 1,\n \"b\": ", 2, "not valid JSON: unexpected end"},
		"BrokenJSON": {"a comma left out", "{\n \"a\": 1,\n \"b\": 2\n \"c\": 3}", 4,
			"not valid JSON: invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, found, ok := Parse([]byte(test.text))
			require.False(t, ok, test.reason)
			errs := found.Sorted()
			require.Len(t, errs, 1, test.reason)
			require.Contains(t, errs[0].Reason, test.contains, test.reason)
			require.Equal(t, test.line, errs[0].Line, "%s: %s", test.reason, errs[0].Reason)
		})
	}
}

func TestParseAcceptsEveryFormOfOneDocument(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ reason, text string }{
		"Plain":          {"YAML", "a: x\n"},
		"Marked":         {"a marker at the beginning", "---\na: x\n"},
		"Closed":         {"a closing marker", "a: x\n...\n"},
		"ClosedComment":  {"a comment after the closing marker", "a: x\n...\n# done\n"},
		"ClosedIndented": {"the indented closing marker of the source document", "a: x\n   \n   ...\n\n# done\n"},
		"WindowsLines":   {"line ends of Windows", "a: x\r\n...\r\n"},
		"ByteOrderMark":  {"a byte order mark", "\ufeffa: x\n"},
		"Directive":      {"a directive", "%YAML 1.1\n---\na: x\n"},
		"JSON":           {"JSON", `{"a": "x"}`},
		"JSONTabs":       {"JSON indented with tabs", "{\n\t\"a\":\t\"x\"\n}\n"},
		"JSONEscapes":    {"JSON's own escapes", `{"a":"\u0078"}`},
		"Flow":           {"YAML's short form", "{a: x}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, found, ok := Parse([]byte(test.text))
			require.True(t, ok, "%s: %v", test.reason, found.Sorted())
			require.Equal(t, "x", root.Mapping("a").Field("a").Text(), test.reason)
			require.Empty(t, found.Sorted(), test.reason)
		})
	}
}

func TestDotsInValue_AreKept(t *testing.T) {
	t.Parallel()
	root, _, ok := Parse([]byte("a: |\n  waiting\n  ...\n"))
	require.True(t, ok)
	require.Equal(t, "waiting\n...\n", root.Mapping("a").Field("a").Text(),
		"dots in a text block are text even at the end of the document")
	root, _, ok = Parse([]byte("a:\n  ...\n"))
	require.True(t, ok)
	require.Equal(t, "...", root.Mapping("a").Field("a").Text(), "dots that are the whole value are the value")
}

func TestJSONIsReadAsJSON(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 2000)
	root, found, ok := Parse([]byte("{\"a\": \"\\ud83d\\ude00\\/\",\n\"" + long + "\": 1,\n\"a\": 2,\n\"n\": 1e3}"))
	require.True(t, ok)
	m := root.Mapping("a", "n")
	require.Equal(t, "😀/", m.Field("a").Text(), "surrogate pairs and escaped slashes are JSON's, not YAML's")
	require.Zero(t, m.Field("n").Integer(0, 9))
	errs := found.Sorted()
	require.Len(t, errs, 3)
	require.Equal(t, 2, errs[0].Line, "a key longer than YAML allows is an unknown key with its line")
	require.Contains(t, errs[0].Reason, "unknown key")
	require.Equal(t, FieldError{Field: "a", Line: 3, Reason: "appears twice (lines 1 and 3): keep one"}, errs[1])
	require.Equal(t, 4, errs[2].Line)
}

func TestParse_IsFast_ForHostileDocuments(t *testing.T) {
	t.Parallel()
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 30; i++ {
		name, before := string(rune('a'+i%26)), string(rune('a'+(i-1)%26))
		if i == 1 {
			before = "a0"
		}
		bomb += name + ": &" + name + " [" + strings.TrimSuffix(strings.Repeat("*"+before+", ", 9), ", ") + "]\n"
	}
	for name, text := range map[string]string{
		"Aliases": bomb,
		"Deep":    strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"Deeper":  strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"Keys":    strings.Repeat("deployPlanItem: 1\n", 50_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			root, found, ok := Parse([]byte(text))
			if ok {
				root.Object()
				root.Mapping("comment", "deployPlanItems")
			}
			require.NotEmpty(t, found.Sorted(), "each of these is rejected")
			require.Less(t, time.Since(begin), 20*time.Second)
		})
	}
}
