package conversion_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/kruise/conversion"
)

func review(to string, objects string) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u-1","desiredAPIVersion":%q,"objects":[%s]}}`, to, objects)
}

const (
	stored = `{"apiVersion":"rollouts.kruise.io/v1beta1","kind":"Rollout","metadata":{"name":"a"},"spec":{"strategy":{"blueGreen":{"steps":[{"replicas":1}]}}}}`
	broken = `{"apiVersion":"rollouts.kruise.io/v1alpha1","kind":"Rollout","metadata":{"name":"b","namespace":"n"},"spec":{}}`
)

func TestReview(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, request, failure string
		converted                int
	}{
		"One":     {"an object", string(review(alpha, stored)), "", 1},
		"Several": {"a list is converted in one request", string(review(alpha, stored+","+stored)), "", 2},
		"None":    {"an empty list", string(review(alpha, "")), "", 0},
		"Refused": {"all of them or none", string(review(beta, stored+","+broken)),
			"Rollout n/b: the object has no strategy.canary", 0},
		"NoObject": {"what is no object", string(review(alpha, "null")), "an object", 0},
		"NoKind":   {"an object has a kind", string(review(alpha, "{}")), "can't be read", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts, err := conversion.Review([]byte(test.request))
			require.NoError(t, err, test.reason)
			raw := bytes.Join(parts, nil)
			var answer apiextensionsv1.ConversionReview
			require.NoError(t, json.Unmarshal(raw, &answer))
			require.EqualValues(t, "u-1", answer.Response.UID, "the API server compares it")
			require.Len(t, answer.Response.ConvertedObjects, test.converted, test.reason)
			if test.failure == "" {
				require.Equal(t, metav1.StatusSuccess, answer.Response.Result.Status, test.reason)
				return
			}
			require.Equal(t, metav1.StatusFailure, answer.Response.Result.Status, test.reason)
			require.Contains(t, answer.Response.Result.Message, test.failure, test.reason)
		})
	}
}

func TestReview_Fails_ForOtherRequests(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"NoJSON":    "{",
		"NoKind":    "{}",
		"Version":   `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","request":{}}`,
		"NoRequest": `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`,
	} {
		_, err := conversion.Review([]byte(text))
		require.ErrorContains(t, err, "the request is not a ConversionReview", name)
	}
}

// For every input, the answer is an error, or a review with as many objects as requested, or a reason for the failure.
// Converted objects survive the round trip.
func FuzzReview(f *testing.F) {
	f.Add(review(alpha, stored))
	f.Add(review(beta, broken))
	f.Add(review(alpha,
		`{"apiVersion":"rollouts.kruise.io/v1beta1","kind":"Rollout","metadata":{"annotations":{"slipway.io/v1alpha1":"{\"digest\":\"d\"}"}},"spec":[]}`))
	f.Add(review(beta,
		`{"apiVersion":"rollouts.kruise.io/v1alpha1","kind":"Rollout","spec":{"objectRef":1,"strategy":{"canary":{"steps":[null,{"weight":5}]}}},"status":2}`))
	f.Fuzz(func(t *testing.T, request []byte) {
		parts, err := conversion.Review(request)
		if err != nil {
			return
		}
		raw := bytes.Join(parts, nil)
		var sent, answer apiextensionsv1.ConversionReview
		require.NoError(t, json.Unmarshal(request, &sent))
		require.NoError(t, json.Unmarshal(raw, &answer))
		if answer.Response.Result.Status != metav1.StatusSuccess {
			require.NotEmpty(t, answer.Response.Result.Message)
			return
		}
		require.Len(t, answer.Response.ConvertedObjects, len(sent.Request.Objects))
		for i, object := range answer.Response.ConvertedObjects {
			requireBack(t, object.Raw, sent.Request.Objects[i].Raw)
		}
	})
}

// requireBack converts an object back. Only an object of v1beta1, the stored version, must be restored in every case.
func requireBack(t *testing.T, converted, original []byte) {
	t.Helper()
	var was struct{ APIVersion string }
	if json.Unmarshal(original, &was) != nil || was.APIVersion != beta {
		return
	}
	parts, err := conversion.Review(review(beta, string(converted)))
	require.NoError(t, err)
	var back apiextensionsv1.ConversionReview
	require.NoError(t, json.Unmarshal(bytes.Join(parts, nil), &back))
	require.Equal(t, metav1.StatusSuccess, back.Response.Result.Status, back.Response.Result.Message)
	var a, b map[string]any
	require.NoError(t, json.Unmarshal(original, &a))
	require.NoError(t, json.Unmarshal(back.Response.ConvertedObjects[0].Raw, &b))
	require.Equal(t, a["spec"], b["spec"])
	require.Equal(t, a["status"], b["status"])
}
