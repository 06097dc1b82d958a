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

// answering are client-go's own client and ours, of a server that answers everything with one text.
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

// What is read in a shorter way is what client-go's own client reads, error for error.
func TestUntypedReadsWhatClientGoReads(t *testing.T) {
	for _, c := range []struct {
		reason, text string
		status       int
	}{
		{"numbers keep their kind, and fields that nobody knows stay",
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"n":9007199254740993,"part":0.5,"none":null,"new":{"x":[1,{}]}}}`, 200},
		{"numbers that are too big, have an exponent or a sign, and words that are no text",
			`{"apiVersion":"example.com/v1","kind":"Widget","spec":{"n":[9223372036854775808,-9223372036854775808,1e3,1E400,-0,-0.0,1.0,true,false,null,[],{}]}}`, 200},
		{"numbers that are as big as can be", `{"apiVersion":"example.com/v1","kind":"Widget","spec":[9223372036854775807,18446744073709551616,1e3,-0,0.1]}`, 200},
		{"text with escapes, and names that have some", `{"apiVersion":"example.com/v1","kind":"Widg\u0065t","sp\u0065c":{"a\"b\\":"\ud83d\ude00\n\u0000/\/"}}`, 200},
		{"text that is no UTF-8", "{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"spec\":\"\xff\\ud800\"}", 200},
		{"fields that are there twice", `{"apiVersion":"example.com/v1","kind":"Gadget","kind":"Widget","spec":{"a":{"b":1},"a":{"c":2}}}`, 200},
		{"an object behind an object", `{"apiVersion":"example.com/v1","kind":"Widget"} {"apiVersion":"example.com/v1","kind":"Widget"}`, 200},
		{"an object in blanks", " \n{ \"apiVersion\" :\t\"example.com/v1\", \"kind\": \"Widget\" }\r\n", 200},
		{"a number that is none", `{"apiVersion":"example.com/v1","kind":"Widget","spec":01}`, 200},
		{"a list that is an array", `[{"apiVersion":"example.com/v1","kind":"Widget"}]`, 200},
		{"names of fields that differ in case are two", `{"apiVersion":"example.com/v1","kind":"Widget","Kind":"Other","metadata":{"name":"a"}}`, 200},
		{"an object that has items is an object", `{"apiVersion":"example.com/v1","kind":"Widget","items":[{"a":1}]}`, 200},
		{"an object without a kind", `{"metadata":{"name":"a"}}`, 200},
		{"an object without a version", `{"kind":"Widget","metadata":{"name":"a"}}`, 200},
		{"a list whose items say nothing of their kind", `{"apiVersion":"example.com/v1","kind":"WidgetList","metadata":{"resourceVersion":"7","continue":"x"},` +
			`"items":[{"metadata":{"name":"a"}},{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{"name":"b"}}]}`, 200},
		{"an empty list", `{"apiVersion":"example.com/v1","kind":"WidgetList","metadata":{"resourceVersion":"7"},"items":[]}`, 200},
		{"a list that has no list", `{"apiVersion":"example.com/v1","kind":"WidgetList","metadata":{},"items":null}`, 200},
		{"a list whose items are no list", `{"apiVersion":"example.com/v1","kind":"WidgetList","items":{}}`, 200},
		{"a version that is no text", `{"apiVersion":5,"kind":"Widget","metadata":{"name":"a"}}`, 200},
		{"a refusal of another version",
			`{"kind":"Status","apiVersion":"meta.k8s.io/v1","metadata":{},"status":"Failure","message":"no","reason":"Conflict","code":409}`, 409},
		{"a list of what is no object", `{"apiVersion":"example.com/v1","kind":"WidgetList","items":[1]}`, 200},
		{"what is no JSON", `<html>`, 200},
		{"text that breaks off", `{"apiVersion":"example.com/v1","kind":"Wid`, 200},
		{"an answer that is empty", ``, 200},
		{"a refusal", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"Conflict","code":409}`, 409},
		{"a refusal that says 200", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"Conflict","code":409}`, 200},
		{"a failure that is no object", `gone`, 503},
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
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}}}
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

// The events of a watch are client-go's own, and so is how it ends.
func TestUntypedWatchesWhatClientGoWatches(t *testing.T) {
	for _, c := range []struct{ reason, text string }{
		{"objects that come, change and go, and a bookmark",
			`{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"1"},"spec":{"n":5}}}` + "\n" +
				`{"type":"MODIFIED","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"2"},"spec":{"text":"\"},{"}}}` + "\n" +
				`{"type":"DELETED","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"3"}}}` + "\n" +
				`{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"4","creationTimestamp":null}}}` + "\n"},
		{"a version that is too old",
			`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}` + "\n"},
		{"an event that is longer than what is read at once, and one behind it", `{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget","spec":"` +
			strings.Repeat("long ", 10_000) + `"}}{"type":"DELETED","object":{"apiVersion":"example.com/v1","kind":"Widget"}}` + "\n"},
		{"fields that are there twice, and text that is no UTF-8",
			"{\"type\":\"DELETED\",\"type\":\"ADDED\",\"object\":{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"spec\":\"\xff\"}}\n"},
		{"an object that is text, and one that is none", `{"type":"ADDED","object":"Widget"}` + "\n" + `{"type":"ADDED","object":null}` + "\n"},
		{"a type with escapes, and one that is no text", `{"type":"ADD\u0045D","object":{"apiVersion":"example.com/v1","kind":"Widget"}}` + "\n" + `{"type":5}` + "\n"},
		{"events behind one that breaks off", `{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget"}}` + "\n" + `{"type":"ADDED",]` + "\n" +
			`{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget"}}` + "\n"},
		{"what is no object", `[1] 5 "text"`},
		{"fields that nobody knows, in another order", `{"new":{"a":[]},"object":{"apiVersion":"example.com/v1","kind":"Widget"},"type":"ADDED","more":1}` + "\n"},
		{"a type that there is not", `{"type":"MOVED","object":{"apiVersion":"example.com/v1","kind":"Widget"}}` + "\n"},
		{"an event without an object", `{"type":"ADDED"}` + "\n"},
		{"an object without a kind", `{"type":"ADDED","object":{"metadata":{"name":"a"}}}` + "\n"},
		{"what is no JSON", "<html>"},
		{"text that breaks off", `{"type":"ADDED","object":{"apiVersion":"exam`},
	} {
		t.Run(c.reason, func(t *testing.T) {
			own, ours := answering(t, 200, c.text)
			require.Equal(t, heard(t, own), heard(t, ours))
		})
	}
}

// heard are all events of a watch until it ends.
func heard(t *testing.T, client dynamic.Interface) (events []watch.Event) {
	w, err := client.Resource(widgets).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer w.Stop()
	for event := range w.ResultChan() {
		events = append(events, event)
	}
	return events
}

// An event is heard when it has come, not when the next one begins.
func TestUntypedHearsAnEventAtOnce(t *testing.T) {
	heard := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget"}}`)) // and nothing behind it
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
	require.False(t, more, "the stream has ended, which is no event")
}

// Whatever an object has in it, and whatever became of its text on the way: it reads as with client-go.
func TestUntypedReadsAnyObject(t *testing.T) {
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

// anyValue are values of JSON with as many values in each other at most.
func anyValue(depth int) *rapid.Generator[any] {
	flat := []*rapid.Generator[any]{rapid.String().AsAny(), rapid.Int64().AsAny(), rapid.Float64().AsAny(), rapid.Bool().AsAny(), rapid.Just(any(nil))}
	if depth == 0 {
		return rapid.OneOf(flat...)
	}
	inner := anyValue(depth - 1)
	return rapid.OneOf(append(flat, rapid.MapOfN(rapid.String(), inner, 0, 3).AsAny(), rapid.SliceOfN(inner, 0, 3).AsAny())...)
}
