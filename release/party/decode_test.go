package party

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/v1alpha1"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, document string
		want             v1alpha1.PartySpec
	}{
		"Whole": {
			"all keys of a party", "queue: alice.own\nnamespace: alice-apps\nlabels:\n  region: eu\n  " +
				"example.com/tier: \"1\"\n  empty: ''\n",
			v1alpha1.PartySpec{Queue: "alice.own", Namespace: "alice-apps",
				Labels: map[string]string{"region": "eu", "example.com/tier": "1", "empty": ""}},
		},
		"JSON":     {"JSON is accepted as well", `{"namespace": "a"}`, v1alpha1.PartySpec{Namespace: "a"}},
		"Nothing":  {"all keys are optional", "{}", v1alpha1.PartySpec{}},
		"NoLabels": {"empty labels are the same as none", "labels: {}", v1alpha1.PartySpec{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, wrong := Decode([]byte(test.document))
			require.NoError(t, wrong.Err(), test.reason)
			require.Equal(t, test.want, got, test.reason)
		})
	}
}

func TestDecodeRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ reason, document, want string }{
		"Empty": {"the document is empty", "", ""},
		"List":  {"a party is a mapping", "[a]", "must be a mapping with the keys queue, namespace, labels"},
		"UnknownKey": {"a misspelt key would be dropped", "quue: a",
			`line 1, quue: unknown key "quue": did you mean "queue"?`},
		"EmptyQueue": {"a queue has a name", "queue: ''", "line 1, queue: is empty"},
		"BlankQueue": {"blanks are illegal", "queue: a b",
			`line 1, queue: "a b" is not the name of a queue: it contains a blank, a quote or a backslash`},
		"TabQueue": {"tabs are illegal", `queue: "a\tb"`, "it contains a blank, a quote or a backslash"},
		"QuotedQueue": {"Temporal's visibility queries could not contain it", `queue: a'b`,
			"it contains a blank, a quote or a backslash"},
		"LongQueue": {"201 characters", "queue: " + strings.Repeat("é", 201),
			"line 1, queue: is too long: the name of a queue has at most 200 characters"},
		"EngineQueue": {"the centre would get the party's work", "queue: slipway", "is the engine's own queue"},
		"Namespace": {"the name is illegal in Kubernetes", "namespace: A_b",
			`line 1, namespace: "A_b" is not the name of a namespace`},
		"DotNamespace": {"a namespace's name has no dot", "namespace: a.b", `"a.b" is not the name of a namespace`},
		"LabelKey": {"the key is illegal in Kubernetes", "labels: {'a b': c}",
			`"a b" is not a legal key of a label`},
		"LabelValue": {"the value is illegal in Kubernetes", "labels:\n  a: b c",
			`line 2, labels.a: "b c" is not a legal value of a label`},
		"LabelNumber": {"a label is text", "labels: {a: 1}", "must be text"},
		"LabelList":   {"labels are pairs", "labels: [a]", "must be a mapping of texts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, wrong := Decode([]byte(test.document))
			require.ErrorContains(t, wrong.Err(), test.want, test.reason)
		})
	}
	_, all := Decode([]byte("queue: a b\nnamespace: A\nlabels: {x: 'y z'}\ncolour: red\n"))
	require.Len(t, all, 4, "every error at once: %v", all)
	_, most := Decode([]byte("queue: " + strings.Repeat("é", 200)))
	require.NoError(t, most.Err(), "the limit counts characters, not bytes")
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "{}", "queue: a\nnamespace: b\nlabels: {c: d}\n", `{"labels":{"a":""}}`,
		"labels: {a: &x b}", "queue: [", "labels: {? [a] : b}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, wrong := Decode(data)
		if len(wrong) > 0 {
			return
		}
		text, err := json.Marshal(spec)
		require.NoError(t, err)
		again, wrong := Decode(text)
		require.NoError(t, wrong.Err(), "an encoded spec is legal")
		require.Equal(t, spec, again)
	})
}
