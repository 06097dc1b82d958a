package kube_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"slipway.io/slipway/kube"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// answering returns client-go's client and ours, of a server that gives every request the same answer.
func answering(t *testing.T, status int, text string) (own, ours dynamic.Interface) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	own, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	ours, err = kube.NewUntyped(config)
	require.NoError(t, err)
	return own, ours
}

// Our client decodes what client-go's decodes, with the same errors.
func TestUntypedDecodesLikeClientGo(t *testing.T) {
	for _, c := range []struct {
		reason, text string
		status       int
	}{
		{"numbers keep their type, and unknown fields are kept",
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"n":9007199254740993,"part":0.5,"none":null,"new":{"x":[1,{}]}}}`, 200},
		{"numbers that are too big, have an exponent or a sign, and literals",
			`{"apiVersion":"example.com/v1","kind":"Widget","spec":{"n":[9223372036854775808,-9223372036854775808,1e3,1E400,-0,-0.0,1.0,true,false,null,[],{}]}}`, 200},
		{"the largest numbers",
			`{"apiVersion":"example.com/v1","kind":"Widget","spec":[9223372036854775807,18446744073709551616,1e3,-0,0.1]}`, 200},
		{"text and names with escapes",
			`{"apiVersion":"example.com/v1","kind":"Widg\u0065t","sp\u0065c":{"a\"b\\":"\ud83d\ude00\n\u0000/\/"}}`,
			200},
		{"text that is not UTF-8", "{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"spec\":\"\xff\\ud800\"}",
			200},
		{"duplicate fields",
			`{"apiVersion":"example.com/v1","kind":"Gadget","kind":"Widget","spec":{"a":{"b":1},"a":{"c":2}}}`, 200},
		{"an object after an object",
			`{"apiVersion":"example.com/v1","kind":"Widget"} {"apiVersion":"example.com/v1","kind":"Widget"}`, 200},
		{"an object in white space", " \n{ \"apiVersion\" :\t\"example.com/v1\", \"kind\": \"Widget\" }\r\n", 200},
		{"an invalid number", `{"apiVersion":"example.com/v1","kind":"Widget","spec":01}`, 200},
		{"a list that is an array", `[{"apiVersion":"example.com/v1","kind":"Widget"}]`, 200},
		{"field names that differ in case are different",
			`{"apiVersion":"example.com/v1","kind":"Widget","Kind":"Other","metadata":{"name":"a"}}`, 200},
		{"an object with items is an object", `{"apiVersion":"example.com/v1","kind":"Widget","items":[{"a":1}]}`, 200},
		{"an object without a kind", `{"metadata":{"name":"a"}}`, 200},
		{"an object without a version", `{"kind":"Widget","metadata":{"name":"a"}}`, 200},
		{"a list whose items have no kind",
			`{"apiVersion":"example.com/v1","kind":"WidgetList","metadata":{"resourceVersion":"7","continue":"x"},` +
				`"items":[{"metadata":{"name":"a"}},{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":"b"}}]}`, 200},
		{"an empty list",
			`{"apiVersion":"example.com/v1","kind":"WidgetList","metadata":{"resourceVersion":"7"},"items":[]}`, 200},
		{"a list without items", `{"apiVersion":"example.com/v1","kind":"WidgetList","metadata":{},"items":null}`, 200},
		{"a list whose items are not a list", `{"apiVersion":"example.com/v1","kind":"WidgetList","items":{}}`, 200},
		{"a version that is not text", `{"apiVersion":5,"kind":"Widget","metadata":{"name":"a"}}`, 200},
		{"a refusal with another version",
			`{"kind":"Status","apiVersion":"meta.k8s.io/v1","metadata":{},"status":"Failure","message":"no","reason":"Conflict","code":409}`, 409},
		{"a list of something other than objects", `{"apiVersion":"example.com/v1","kind":"WidgetList","items":[1]}`,
			200},
		{"something other than JSON", `<html>`, 200},
		{"truncated text", `{"apiVersion":"example.com/v1","kind":"Wid`, 200},
		{"an empty answer", ``, 200},
		{"a refusal",
			`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"Conflict","code":409}`, 409},
		{"a refusal with status 200",
			`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"Conflict","code":409}`, 200},
		{"a failure without an object", `missing`, 503},
	} {
		t.Run(c.reason, func(t *testing.T) {
			own, ours := answering(t, c.status, c.text)
			require.Equal(t, answersOf(t, own), answersOf(t, ours))
		})
	}
}

// answersOf are the answer and the error of each kind of request.
func answersOf(t *testing.T, client dynamic.Interface) (answers []any) {
	one := client.Resource(widgets).Namespace("shop")
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "a"}}}
	note := func(answer any, err error) { answers = append(answers, answer, err) }
	note(one.Get(t.Context(), "a", metav1.GetOptions{}))
	note(one.Get(t.Context(), "a", metav1.GetOptions{}, "scale"))
	note(one.List(t.Context(), metav1.ListOptions{}))
	note(one.Create(t.Context(), object, metav1.CreateOptions{}))
	note(one.Update(t.Context(), object, metav1.UpdateOptions{}))
	note(one.Patch(t.Context(), "a", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}))
	note(one.Apply(t.Context(), "a", object, metav1.ApplyOptions{FieldManager: "test"}))
	note(nil, one.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	return answers
}

// Our client's watch delivers the same events as client-go's, and ends the same way.
func TestUntypedWatchesLikeClientGo(t *testing.T) {
	for _, c := range []struct{ reason, text string }{
		{"objects added, modified and deleted, and a bookmark",
			`{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"1"},"spec":{"n":5}}}` + "\n" +
				`{"type":"MODIFIED","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"2"},"spec":{"text":"\"},{"}}}` + "\n" +
				`{"type":"DELETED","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"3"}}}` + "\n" +
				`{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"4","creationTimestamp":null}}}` + "\n"},
		{"an expired version",
			`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}` + "\n"},
		{"an event that is longer than the read buffer, and one after it",
			`{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget","spec":"` +
				strings.Repeat("long ", 10_000) +
				`"}}{"type":"DELETED","object":{"apiVersion":"example.com/v1","kind":"Widget"}}` + "\n"},
		{"duplicate fields, and text that is not UTF-8",
			"{\"type\":\"DELETED\",\"type\":\"ADDED\",\"object\":{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"spec\":\"\xff\"}}\n"},
		{"an object that is text, and a null object",
			`{"type":"ADDED","object":"Widget"}` + "\n" + `{"type":"ADDED","object":null}` + "\n"},
		{"a type with escapes, and one that is not text",
			`{"type":"ADD\u0045D","object":{"apiVersion":"example.com/v1","kind":"Widget"}}` + "\n" + `{"type":5}` +
				"\n"},
		{"events after a truncated one", `{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget"}}` +
			"\n" + `{"type":"ADDED",]` + "\n" +
			`{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget"}}` + "\n"},
		{"something other than an object", `[1] 5 "text"`},
		{"unknown fields, in another order",
			`{"new":{"a":[]},"object":{"apiVersion":"example.com/v1","kind":"Widget"},"type":"ADDED","more":1}` + "\n"},
		{"an unknown type", `{"type":"MOVED","object":{"apiVersion":"example.com/v1","kind":"Widget"}}` + "\n"},
		{"an event without an object", `{"type":"ADDED"}` + "\n"},
		{"an object without a kind", `{"type":"ADDED","object":{"metadata":{"name":"a"}}}` + "\n"},
		{"something other than JSON", "<html>"},
		{"truncated text", `{"type":"ADDED","object":{"apiVersion":"exam`},
	} {
		t.Run(c.reason, func(t *testing.T) {
			own, ours := answering(t, 200, c.text)
			require.Equal(t, heard(t, own), heard(t, ours))
		})
	}
}

// heard returns all events of a watch until it ends.
func heard(t *testing.T, client dynamic.Interface) (events []watch.Event) {
	w, err := client.Resource(widgets).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer w.Stop()
	for event := range w.ResultChan() {
		events = append(events, event)
	}
	return events
}

// An event is delivered when it arrives, not when the next one begins.
func TestUntypedDeliversEventImmediately(t *testing.T) {
	heard := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// and nothing after it
		_, _ = w.Write([]byte(`{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget"}}`))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-heard:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	client, err := kube.NewUntyped(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	w, err := client.Resource(widgets).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer w.Stop()
	event := <-w.ResultChan()
	require.Equal(t, watch.Added, event.Type)
	close(heard)
	_, more := <-w.ResultChan()
	require.False(t, more, "the end of the stream is not an event")
}

// Any object, with any corruption of its text, is decoded as by client-go.
func TestUntypedDecodesAnyObjectLikeClientGo(t *testing.T) {
	var text []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	own, err := dynamic.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	ours, err := kube.NewUntyped(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	rapid.Check(t, func(r *rapid.T) {
		object := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": anyValue(3).Draw(r, "spec")}
		text, err = json.Marshal(object)
		require.NoError(r, err)
		for range rapid.IntRange(0, 2).Draw(r, "broken") {
			text[rapid.IntRange(0, len(text)-1).Draw(r, "at")] = rapid.Byte().Draw(r, "with")
		}
		wanted, wantedErr := own.Resource(widgets).Get(t.Context(), "a", metav1.GetOptions{})
		got, gotErr := ours.Resource(widgets).Get(t.Context(), "a", metav1.GetOptions{})
		require.Equal(r, wantedErr, gotErr)
		require.Equal(r, wanted, got)
	})
}

// anyValue generates JSON values of at most this depth.
func anyValue(depth int) *rapid.Generator[any] {
	flat := []*rapid.Generator[any]{rapid.String().AsAny(), rapid.Int64().AsAny(), rapid.Float64().AsAny(),
		rapid.Bool().AsAny(), rapid.Just(any(nil))}
	if depth == 0 {
		return rapid.OneOf(flat...)
	}
	inner := anyValue(depth - 1)
	return rapid.OneOf(append(flat, rapid.MapOfN(rapid.String(), inner, 0, 3).AsAny(),
		rapid.SliceOfN(inner, 0, 3).AsAny())...)
}
