package kuscia

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"slipway.io/slipway/api/kuscia/kusciapb"
)

// FuzzDecodeJSON checks that every body is either decoded or refused with a message, and that a decoded request
// survives encoding and decoding.
func FuzzDecodeJSON(f *testing.F) {
	for _, file := range []string{"create.json", "update.json"} {
		f.Add([]byte(document(f, file)))
	}
	for _, text := range []string{``, `null`, `[]`, `{bad`, `{"serving_id":1}`, `{"parties":[null]}`,
		`{"parties":[{"resources":[null]}]}`,
		`{"header":{"custom_headers":{"a":null}}}`, `{"serving_id":"a","serving_id":"b"} x`,
		`{"parties":[{"replicas":"2"}]}`, "{\"serving_id\":\"\xff\"}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var request kusciapb.CreateServingRequest
		if err := decodeJSON(body, &request); err != nil {
			require.NotEmpty(t, err.Error())
			require.True(t, json.Valid(frameworkError(codeUnexpected, err.Error())))
			return
		}
		require.Empty(t, nullElement(request.ProtoReflect()))
		raw, err := encodeJSON(&request)
		require.NoError(t, err)
		var again kusciapb.CreateServingRequest
		require.NoError(t, decodeJSON(raw, &again))
		require.True(t, proto.Equal(&request, &again))
		// A decoded request is validated without a panic.
		answer, err := newMemory().service().CreateServing(t.Context(), &request)
		require.NoError(t, err)
		require.NotZero(t, answer.GetStatus().GetCode(), "there is no AppImage")
	})
}
