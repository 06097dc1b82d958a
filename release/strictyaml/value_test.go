package strictyaml

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// readField reads the field "f" of a text with one function, and returns the errors.
func readField[T any](t *testing.T, text string, read func(Value) T) (T, Errors) {
	t.Helper()
	root, found, ok := Parse([]byte(text))
	require.True(t, ok, "%v", found.Sorted())
	value := read(root.Mapping("f").Field("f"))
	return value, found.Sorted()
}

func TestInteger(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text string
		want         int64
		refusal      string
	}{
		"Plain":    {"a number", "f: 3", 3, ""},
		"Negative": {"negative ones are legal", "f: -7", -7, ""},
		"Signed":   {"so is a plus", "f: +7", 7, ""},
		"Least":    {"64 bits down", "f: -9223372036854775808", math.MinInt64, ""},
		"Most":     {"64 bits up", "f: 9223372036854775807", math.MaxInt64, ""},
		"JSON":     {"the same in JSON", `{"f": 3}`, 3, ""},
		"Absent":   {"absent is zero and no error: rules say what is required", "{}", 0, ""},
		"TooLarge": {"more than 64 bits", "f: 9223372036854775808", 0,
			"must be from -9223372036854775808 to 9223372036854775807, not 9223372036854775808"},
		"Huge": {"much more than 64 bits", "f: 99999999999999999999999", 0, "must be from"},
		"Fraction": {"no whole number", "f: 3.5", 0,
			"must be a whole number in decimal digits without leading zeros, not 3.5"},
		"Exponent":     {"readers differ on it", "f: 1e3", 0, "without leading zeros, not 1e3"},
		"LeadingZero":  {"readers differ on whether it is octal", "f: 010", 0, "without leading zeros, not 010"},
		"Hexadecimal":  {"not decimal", "f: 0x10", 0, "not 0x10"},
		"Separated":    {"not decimal digits", "f: 1_000", 0, "not 1_000"},
		"Quoted":       {"templates write numbers so", `f: "3"`, 3, ""},
		"QuotedOctal":  {"readers differ on it in quotes too", `f: "010"`, 0, `not the text "010"`},
		"QuotedJSON":   {"the same in JSON", `{"f": "3"}`, 3, ""},
		"QuotedFigure": {"no number of this language", `f: "3.0"`, 0, `must be a whole number, not the text "3.0"`},
		"Text":         {"a text is not a number", "f: high", 0, `must be a whole number, not the text "high"`},
		"Bool":         {"a boolean is not a number", "f: true", 0, "not the boolean true"},
		"Null":         {"a forgotten value is not zero", "f:", 0, "has no value: write one, or leave the key out"},
		"List":         {"a list is not a number", "f: [3]", 0, "not a list"},
		"Tagged":       {"a custom type", "f: !mine 3", 0, "not a value of the type !mine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, errs := readField(t, test.text, func(v Value) int64 { return v.Integer(math.MinInt64, math.MaxInt64) })
			require.Equal(t, test.want, got, test.reason)
			requireRefusal(t, errs, test.refusal, test.reason)
		})
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text string
		want         int64
		refusal      string
	}{
		"Number":   {"a number is in seconds", "f: 90", 90, ""},
		"Quoted":   {"also in quotes", `f: "90"`, 90, ""},
		"Unit":     {"a text has units", "f: 1h30m", 5400, ""},
		"JSON":     {"the same in JSON", `{"f": "5m"}`, 300, ""},
		"Absent":   {"absent is zero and no error", "{}", 0, ""},
		"Least":    {"the limit is in seconds", "f: 0s", 0, "must be from 1 to 86400 seconds, not 0s"},
		"Most":     {"whatever the unit", "f: 2d", 0, "must be from 1 to 86400 seconds, not 2d"},
		"Negative": {"no negative one here", "f: -5", 0, "must be from 1 to 86400 seconds, not -5"},
		"Huge":     {"more than any limit", "f: 999999999999999999w", 0, "must be from 1 to 86400"},
		"Split":    {"seconds are not split", "f: 1500ms", 0, "must be whole seconds, not 1500ms"},
		"Fraction": {"no whole number", "f: 1.5", 0, "must be a duration, such as 90 (in seconds), 90s, 5m or 1h30m, " +
			"not the number 1.5"},
		"Octal": {"readers differ on it", "f: 010", 0, "not the number 010"},
		"Bool":  {"no duration", "f: true", 0, "not the boolean true"},
		"Text":  {"no duration", "f: soon", 0, `not the text "soon"`},
		"List":  {"no duration", "f: [90]", 0, "not a list"},
		"Null":  {"a forgotten value is not zero", "f:", 0, "has no value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, errs := readField(t, test.text, func(v Value) int64 { return v.Seconds(1, 86400) })
			require.Equal(t, test.want, got, test.reason)
			requireRefusal(t, errs, test.refusal, test.reason)
		})
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text, want, refusal string
	}{
		"Plain":  {"a text", "f: x", "x", ""},
		"Quoted": {"a number in quotes is a text", `f: "3"`, "3", ""},
		"YesNo":  {"yes is a text since YAML 1.2", "f: yes", "yes", ""},
		"Date":   {"a date is a text in YAML 1.2", "f: 2016-07-01", "2016-07-01", ""},
		"Number": {"a number is not guessed to be a text", "f: 1.0", "",
			"must be text, not the number 1.0: put it in quotes"},
		"Bool":    {"nor is a boolean", "f: true", "", "must be text, not the boolean true: put it in quotes"},
		"Mapping": {"a mapping is not a text", "f: {a: b}", "", "must be text, not a mapping"},
		"Null":    {"a forgotten value", "f: ~", "", "has no value"},
		"Empty":   {"an empty text has no meaning", `f: ""`, "", "is empty: write a value, or leave the key out"},
		"Anchor":  {"anchors are refused", "f: &a x", "", "has an anchor (&a)"},
		"Alias":   {"aliases are refused", "{g: &a x, f: *a}", "", "is an alias (*a)"},
		"Binary": {"binary data is not a text", "f: !!binary aGk=", "",
			"must be text, not a value of the type !!binary"},
		"MergeKey": {"keys are not merged in", "{f: x, <<: {f: y}}", "x", "has a merge key (<<)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, found, ok := Parse([]byte(test.text))
			require.True(t, ok)
			require.Equal(t, test.want, root.Mapping("f", "g").Field("f").Text(), test.reason)
			requireRefusal(t, found.Sorted(), test.refusal, test.reason)
		})
	}
}

func TestFreeText(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ reason, text, want, refusal string }{
		"Text":   {"a text", "f: x", "x", ""},
		"Null":   {"the source document lets a comment be empty", "f:", "", ""},
		"Empty":  {"likewise", `f: ""`, "", ""},
		"Number": {"a number is still not a text", "f: 3", "", "put it in quotes"},
		"Anchor": {"an anchor on nothing is still an anchor", "f: &a", "", "anchor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, errs := readField(t, test.text, Value.FreeText)
			require.Equal(t, test.want, got, test.reason)
			requireRefusal(t, errs, test.refusal, test.reason)
		})
	}
}

func TestNameKeepsItsSpelling(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ reason, text, want, refusal string }{
		"Number":      {"a number", "f: 111", "111", ""},
		"LeadingZero": {"0111 stays 0111", "f: 0111", "0111", ""},
		"Hexadecimal": {"no arithmetic is done", "f: 0x1F", "0x1F", ""},
		"Long": {"more digits than 64 bits hold", "f: 123456789012345678901234567890",
			"123456789012345678901234567890", ""},
		"Text":       {"a text", "f: order", "order", ""},
		"Quoted":     {"a text that looks like a number with an exponent", `f: "1e3"`, "1e3", ""},
		"JSONNumber": {"a number in JSON", `{"f": 111}`, "111", ""},
		"JSONText":   {"a text in JSON", `{"f": "0111"}`, "0111", ""},
		"Date":       {"a name that looks like a date", "f: 2016-07-01", "2016-07-01", ""},
		"Exponent": {"is it 1000 or a name?", "f: 1e3", "",
			"must be a whole number or text, not the number 1e3: if that is the name, put it in quotes"},
		"Fraction": {"is it a number or a name?", "f: 1.5", "", "put it in quotes"},
		"Bool":     {"a boolean is not a name", "f: true", "", "put it in quotes"},
		"Null":     {"a forgotten name", "f: null", "", "has no value"},
		"List":     {"a list is not a name", "f: [1]", "", "not a list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, errs := readField(t, test.text, Value.Name)
			require.Equal(t, test.want, got, test.reason)
			requireRefusal(t, errs, test.refusal, test.reason)
		})
	}
}

func TestObject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ reason, text, want, refusal string }{
		"Nested": {"everything JSON has", "f: {a: [1, x, true, null, 1.5, {}], b: 0644}",
			`{"a":[1,"x",true,null,1.5,{}],"b":420}`, ""},
		"Unsigned": {"the largest number JSON readers take", "f: {a: 18446744073709551615}",
			`{"a":18446744073709551615}`, ""},
		"NumberKey": {"a key that is a number is a text in JSON", "f: {1: x}", `{"1":"x"}`, ""},
		"Repeated":  {"a repeated key deep inside", "f:\n  a: {b: 1, b: 2}\n", `{"a":{"b":1}}`, "f.a.b: appears twice"},
		"Alias":     {"an alias deep inside", "f: {a: &x 1, b: [*x]}", `{"a":null,"b":[null]}`, "f.b[0]: is an alias"},
		"Infinity":  {"JSON has no infinity", "f: {a: .inf}", `{"a":null}`, "must be text, a number, true or false"},
		"Text":      {"a text is not a mapping", "f: x", "", "must be a mapping, not the text"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, errs := readField(t, test.text, Value.Object)
			if test.want == "" {
				require.Empty(t, got, test.reason)
			} else {
				require.JSONEq(t, test.want, string(got), test.reason)
			}
			if test.refusal == "" {
				require.Empty(t, errs, test.reason)
			} else {
				require.Contains(t, errs.Error(), test.refusal, test.reason)
			}
		})
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"serviceId", "priority", "deployment", "deployLabel", "httpSrcUri"}
	for word, want := range map[string]string{
		"ServiceID": "serviceId", "service_id": "serviceId", "service-id": "serviceId", "serviceid": "serviceId",
		"prioirty": "priority", "priorty": "priority", "deploymnt": "deployment", "deployLable": "deployLabel",
		"httpSrcUrl": "httpSrcUri",
		"replicas":   "", "x": "", "": "", "--": "", "deploy": "",
	} {
		require.Equal(t, want, Nearest(word, known), "the key %q", word)
	}
}

func TestErrors_Format(t *testing.T) {
	t.Parallel()
	errs := Errors{
		{Item: 3, Field: "deployPlanItems[2].priority", Line: 14, Reason: "must be a whole number"},
		{Reason: "is empty"},
	}
	require.Equal(t, "item 3, line 14, deployPlanItems[2].priority: must be a whole number\nthe document: is empty",
		errs.Error())
	require.Error(t, errs.Err())
	require.NoError(t, Errors(nil).Err(), "an empty list is a nil error")
}

func requireRefusal(t *testing.T, errs Errors, want, reason string) {
	t.Helper()
	if want == "" {
		require.Empty(t, errs, reason)
		return
	}
	require.Len(t, errs, 1, reason)
	require.Contains(t, errs[0].Reason, want, reason)
	require.Equal(t, 1, errs[0].Line, reason)
}
