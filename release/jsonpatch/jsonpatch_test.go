package jsonpatch_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/jsonpatch"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var value map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &value))
	o, ok := jsonpatch.Normalise(value).(map[string]any)
	require.True(t, ok)
	return o
}

func TestPointers(t *testing.T) {
	t.Parallel()
	require.Equal(t, "/metadata/annotations/a~1b~0c", jsonpatch.Annotation("a/b~c"),
		"RFC 6901 spells ~ and / as ~0 and ~1")
	require.Equal(t, "/metadata/labels/a~1b", jsonpatch.Label("a/b"))
	o := object(t, `{"metadata":{"annotations":{"a/b~c":"x","~1":"y"}},"spec":[1]}`)
	value, there := jsonpatch.At(o, jsonpatch.Annotation("a/b~c"))
	require.True(t, there)
	require.Equal(t, "x", value)
	value, _ = jsonpatch.At(o, jsonpatch.Annotation("~1"))
	require.Equal(t, "y", value, "~01 is ~1, not /")
	_, there = jsonpatch.At(o, "/spec/0")
	require.False(t, there, "a pointer does not lead into a list")
	_, there = jsonpatch.At(o, "/status/ready")
	require.False(t, there, "nor to a missing member")
	jsonpatch.Drop(o, "/status/ready/now") // a missing value is ignored
	jsonpatch.Drop(o, jsonpatch.Annotation("~1"))
	jsonpatch.Drop(o, jsonpatch.Annotation("a/b~c"))
	require.Equal(t, object(t, `{"metadata":{},"spec":[1]}`), o, "the API server drops an empty map of annotations")
}

func TestDiff_TransformsOneObjectIntoTheOther(t *testing.T) {
	t.Parallel()
	from, to := object(t, `{"spec":{"a":1,"b":"x","c":[1]}}`),
		object(t, `{"spec":{"a":2,"c":[1]},"metadata":{"labels":{"l":""}}}`)
	pointers := []string{"/spec/a", "/spec/b", "/spec/c", "/metadata/labels/l", "/spec/a"}
	patch := jsonpatch.Diff(from, to, pointers)
	text, err := json.Marshal(patch)
	require.NoError(t, err)
	require.JSONEq(t,
		`[{"op":"add","path":"/metadata/labels","value":{}},{"op":"add","path":"/metadata/labels/l","value":""},
		{"op":"add","path":"/spec/a","value":2},{"op":"remove","path":"/spec/b"}]`, string(text), "only what differs, parents first, empty values kept")
	require.Equal(t, to, jsonpatch.Apply(from, patch))
	require.Equal(t, object(t, `{"spec":{"a":1,"b":"x","c":[1]}}`), from, "the object itself is unchanged")
	require.Empty(t, jsonpatch.Diff(to, to, pointers))
	undo, err := jsonpatch.ParseUndo(string(text), anywhere)
	require.NoError(t, err)
	require.Equal(t, patch[2], undo[2], "a saved patch is read unchanged: numbers stay integers")
}

func anywhere(string) bool { return true }

func TestParseUndo_AcceptsOnlyBorrowedPointers(t *testing.T) {
	t.Parallel()
	spec := func(pointer string) bool { return pointer == "/spec" }
	_, err := jsonpatch.ParseUndo(`[{"op":"remove","path":"/spec"}]`, spec)
	require.NoError(t, err)
	_, err = jsonpatch.ParseUndo(`[{"op":"remove","path":"/spec"},{"op":"remove","path":"/metadata/ownerReferences"}]`,
		spec)
	require.EqualError(t, err, "operation 2 changes /metadata/ownerReferences, which no release borrows")
}

func TestParseUndo_Fails_ForInvalidPatches(t *testing.T) {
	t.Parallel()
	for reason, text := range map[string]string{
		"a test is never saved":         `[{"op":"test","path":"/a","value":1}]`,
		"a pointer begins with a slash": `[{"op":"remove","path":"a"}]`,
		"it is not a list":              `{}`,
		"an operation without a name":   `[{"path":"/a"}]`,
		"it is not JSON":                `[`,
	} {
		_, err := jsonpatch.ParseUndo(text, anywhere)
		require.Error(t, err, reason)
	}
}
