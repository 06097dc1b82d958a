package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func someVariables() Variables {
	return Variables{
		Values: map[string]string{
			"PLAIN": "value", "QUOTED": `a "b" \ c "`, "EMPTY": "", "HTML": "<a&b>", "LINES": "a\nb",
			"JSON": `{"list":[{"name":"x","n":1},{"name":"y","n":22,"on":true,"z":null}],"at":1,"text":"a\"b","big":12345678901234567890,"<":{"b":2,"a":1}}`,
			"TWO":  `{} {}`,
		},
		Unknown: map[string]bool{"SECRET": true},
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	cases := []struct{ reason, text, expected string }{
		{"plain text is unchanged", "a {b} $c \"d\"\n", "a {b} $c \"d\"\n"},
		{"a variable is replaced by its value", "[{{.PLAIN}}]", "[value]"},
		{"a value is escaped for a JSON string, also if it ends with a quotation mark", "{{.QUOTED}}",
			`a \"b\" \\ c \"`},
		{"angle brackets are not escaped", "{{.HTML}}", "<a&b>"},
		{"a line break is escaped", "{{.LINES}}", `a\nb`},
		{"an unknown variable is empty", "[{{.MISSING}}{{.EMPTY}}]", "[]"},
		{"a file can depend on a variable", "{{if .PLAIN}}yes{{else}}no{{end}} {{with .EMPTY}}yes{{else}}no{{end}}",
			"yes no"},
		{"functions of text/template are available",
			`{{printf "%q-%s" .PLAIN "x"}} {{len .PLAIN}} {{eq .PLAIN "value"}} {{print 1 2}} {{html .HTML}} {{urlquery .HTML}} {{js .PLAIN}} {{println .PLAIN}}`,
			"\"value\"-x 5 true 1 2 &lt;a&amp;b&gt; %3Ca%26b%3E value value\n"},
		{"trim markers remove spaces", "a {{- .PLAIN -}} b", "avalueb"},
		{"a field of a JSON variable", "{{{.JSON.at}}}", "1"},
		{"a path without a field is the variable", "{{{.PLAIN}}}", "value"},
		{"variable names in paths are case-insensitive", "{{{.json.at}}}", "1"},
		{"an element by its index", "{{{.JSON.list[1].name}}}", "y"},
		{"an element by an index from another path", "{{{.JSON.list[.JSON.at].n}}}", "22"},
		{"the first element whose key has a value", "{{{.JSON.list[name=y].n}}}", "22"},
		{"a number matches, too", "{{{ .JSON.list[n=1].name }}}", "x"},
		{"text from JSON is escaped for a JSON string", "{{{.JSON.text}}}", `a\"b`},
		{"a large number keeps its precision", "{{{.JSON.big}}}", "12345678901234567890"},
		{"booleans are text, null is empty", "{{{.JSON.list[1].on}}}[{{{.JSON.list[1].z}}}]", "true[]"},
		{"objects are inserted as JSON", "{{{.JSON.<}}}{{{.JSON.list[0]}}}", `{"a":1,"b":2}{"n":1,"name":"x"}`},
		{"a path into an unknown variable is empty", "[{{{.MISSING.a[0].b}}}]", "[]"},
		{"a path may be used in a branch", "{{with .PLAIN}}{{{.JSON.at}}}{{end}}", "1"},
	}
	for _, c := range cases {
		out, err := Render(c.text, someVariables())
		require.NoError(t, err, c.reason)
		require.Equal(t, c.expected, out, c.reason)
	}
}

func TestRender_RefusesTemplate(t *testing.T) {
	t.Parallel()
	double := `{{$x := "0123456789abcdef"}}` + strings.Repeat(`{{$x = print $x $x}}`, 40)
	var manyPaths strings.Builder
	for i := range 1000 {
		manyPaths.WriteString("{{if .EMPTY}}{{{.LARGE.text" + strings.Repeat(" ", i) + "}}}{{end}}")
	}
	var manySearches, elements strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&manySearches, "{{{.LIST.all[k=9999]%s}}}", strings.Repeat(" ", i))
	}
	for i := range 10000 {
		fmt.Fprintf(&elements, `{"k":%d},`, i)
	}
	vars := someVariables()
	vars.Values["LIST"] = `{"all":[` + strings.TrimSuffix(elements.String(), ",") + `]}`
	vars.Values["LARGE"] = `{"text":"` + strings.Repeat("x", 100<<10) + `"}`
	cases := []struct{ reason, text, message string }{
		{"a template that does not parse", "{{.A", "does not parse"},
		{"functions that text/template does not have", "{{env .A}}", `function "env" not defined`},
		{"a field of a plain value", "{{.PLAIN.field}}", "cannot be rendered"},
		{"a loop could run without end", "{{range 1000000000}}{{end}}", "range is not supported"},
		{"templates could call each other without end", `{{define "a"}}{{template "a"}}{{end}}`,
			`defines the template "a"`},
		{"a block is a template", `{{block "a" .}}{{end}}`, `defines the template "a"`},
		{"a template that does not exist", `{{template "a"}}`, "template is not supported"},
		{"a loop within a branch", "{{if .PLAIN}}{{else}}{{with .PLAIN}}{{range .}}{{end}}{{end}}{{end}}",
			"range is not supported"},
		{"text that doubles with each line", double, "too much text"},
		{"a file that grows beyond the bound while it is written", strings.Repeat("{{.JSON}}", 10000),
			"larger than 1048576 bytes"},
		{"a width that generates text", strings.Repeat(`{{$x := printf "%0999999d" 1}}`, 9), "too much text"},
		{"a width from an argument", `{{printf "%*d" 999999 1}}`, "printf: * and [n] are not supported"},
		{"an argument used repeatedly", `{{printf "%[1]s%[1]s" .PLAIN}}`, "printf: * and [n] are not supported"},
		{"a file that is too large", strings.Repeat("x", MaxSize) + "{{.PLAIN}}", "at most 1048576 are rendered"},
		{"a value known only in the party's cluster", "{{if .PLAIN}}{{.SECRET}}{{end}}",
			"uses SECRET, whose value comes from a Secret"},
		{"such a value as a function argument", "{{printf `%s` (print .SECRET)}}", "uses SECRET"},
		{"such a value via the root", "{{$.SECRET}}", "uses SECRET"},
		{"such a value in a path", "{{{.SECRET.a}}}", "uses SECRET"},
		{"a path into what is not JSON", "{{{.PLAIN.a}}}", "PLAIN is not JSON"},
		{"a path into more than one JSON value", "{{{.TWO.a}}}", "TWO is not one JSON value"},
		{"a field that does not exist", "{{{.JSON.nothing}}}", "{{{.JSON.nothing}}}: there is no field nothing"},
		{"a field of a list", "{{{.JSON.list.name}}}", "there is no field name"},
		{"an index that does not exist", "{{{.JSON.list[2]}}}", "there is no element 2: the list has 2"},
		{"an index into what is not a list", "{{{.JSON.at[0]}}}", "is not a list"},
		{"an index that is not a number", "{{{.JSON.list[.JSON.text]}}}", "is not the index of an element"},
		{"no element with that value", "{{{.JSON.list[name=z]}}}", "no element has name=z"},
		{"the same large value by many paths", manyPaths.String(), "too much text"},
		{"too many element lookups", manySearches.String(), "too much text"},
		{"a path without a leading dot", "{{{JSON.a}}}", "is not understood"},
		{"a path with an empty field", "{{{.JSON..a}}}", "is not understood"},
		{"a path with an open bracket", "{{{.JSON.list[0}}}", "is not understood"},
		{"a path with brackets within brackets", "{{{.JSON.list[.JSON.list[0].n]}}}", "is not understood"},
		{"a path with a negative index", "{{{.JSON.list[-1]}}}", "is not understood"},
		{"a path with an empty key", "{{{.JSON.list[=1]}}}", "is not understood"},
		{"unbalanced braces", "{{{.JSON.a}}", "does not parse"},
	}
	for _, c := range cases {
		_, err := Render(c.text, vars)
		require.ErrorContains(t, err, c.message, c.reason)
	}
}

// FuzzConfigTemplate checks for any template and input that rendering terminates, stays within its bounds and is
// deterministic, and that a value never breaks out of the JSON string that contains it.
func FuzzConfigTemplate(f *testing.F) {
	for _, text := range []string{"{{.INPUT_CONFIG}}", `{{printf "%s" .INPUT_CONFIG}}`, "{{{.INPUT_CONFIG.a[0].b}}}",
		"{{{.INPUT_CONFIG.a[k=v]}}}",
		"{{if .A}}{{else}}x{{end}}", `{{$x := print .A .A}}{{$x}}`, "{{range 9}}{{end}}", "{{/* {{{.A.b}}} */}}",
		`{{index $ "A"}}{{.}}`, "{{slice .A 1}}", "{{call .A}}"} {
		f.Add(text, `{"a":[{"b":"c","k":"v"}]}`)
		f.Add(text, "\"")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		vars := Variables{Values: map[string]string{"INPUT_CONFIG": value, "A": value},
			Unknown: map[string]bool{"B": true}}
		out, err := Render(text, vars)
		again, errAgain := Render(text, vars)
		require.Equal(t, out, again)
		require.Equal(t, err == nil, errAgain == nil)
		require.LessOrEqual(t, len(out), MaxSize)

		file, err := Render(`{"v": "{{.INPUT_CONFIG}}"}`, vars)
		if err != nil {
			require.ErrorContains(t, err, "larger than")
			return
		}
		var read map[string]string
		require.NoError(t, json.Unmarshal([]byte(file), &read))
		require.Equal(t, string([]rune(value)), read["v"], "except for invalid UTF-8")
	})
}
