package hold

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/kruise/v1beta1"
)

// reviewed returns the response to an edit of a resource, and how often the Rollouts were read.
func reviewed(t *testing.T, resource, user, old, edited string) (response *admission.AdmissionResponse, reads int,
	err error) {
	t.Helper()
	raw := func(text string) runtime.RawExtension {
		out, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		return runtime.RawExtension{Raw: out}
	}
	review := admission.AdmissionReview{Request: &admission.AdmissionRequest{UID: "u", Operation: admission.Update,
		Namespace: "shop",
		Object:    raw("{apiVersion: v, kind: K, " + edited[1:]),
		OldObject: raw("{apiVersion: v, kind: K, " + old[1:])}}
	review.APIVersion, review.Kind = "admission.k8s.io/v1", "AdmissionReview"
	review.Request.UserInfo.Username = user
	review.Request.Resource.Group, review.Request.Resource.Resource = "apps", resource
	review.Request.Kind.Group, review.Request.Kind.Kind = "apps", map[string]string{"deployments": "Deployment",
		"replicasets": "ReplicaSet"}[resource]
	if resource == "rollouts" {
		review.Request.Resource.Group, review.Request.SubResource = "rollouts.kruise.io", "status"
	}
	body, err := json.Marshal(review)
	require.NoError(t, err)
	answer, err := Reviewer{Engine: func(user, namespace string) bool {
		return user == "engine" && namespace == "shop"
	},
		Rollouts: func(string) ([]v1beta1.Rollout, error) {
			reads++
			return nil, errors.New("connection refused")
		}}.Review(body)
	if err != nil {
		return nil, reads, err
	}
	review = admission.AdmissionReview{}
	require.NoError(t, json.Unmarshal(answer, &review))
	require.EqualValues(t, "u", review.Response.UID)
	return review.Response, reads, nil
}

func TestReview(t *testing.T) {
	t.Parallel()
	const free = `{metadata: {name: web}, spec: {template: {spec: {image: v1}}}}`
	changed := `{metadata: {name: web, labels: {slipway.io/gate: web}}, spec: {template: {spec: {image: v2}}}}`
	labelled := `{metadata: {name: web, labels: {slipway.io/gate: web}}, spec: {template: {spec: {image: v1}}}}`
	r, reads, err := reviewed(t, "deployments", "anna", labelled, changed)
	require.NoError(t, err)
	require.True(t, r.Allowed, "it is held, not refused")
	require.Contains(t, string(r.Patch), `"/spec/paused","value":true`)
	require.Zero(t, reads, "the label is enough")
	r, _, err = reviewed(t, "deployments", "engine", labelled, changed)
	require.NoError(t, err)
	require.True(t, r.Allowed)
	require.Nil(t, r.PatchType, "the engine's edits pass")
	_, reads, err = reviewed(t, "deployments", "anna", free,
		`{metadata: {name: web}, spec: {template: {spec: {image: v2}}}}`)
	require.ErrorContains(t, err, "connection refused", "the API server applies its failure policy")
	require.Equal(t, 1, reads)
	r, _, err = reviewed(t, "rollouts", "anna", `{status: {slipway: {seq: 1}}}`,
		`{status: {slipway: {seq: 1}, canaryStatus: {nextStepIndex: 1}}}`)
	require.NoError(t, err)
	require.Contains(t, string(r.Patch), `"by":"anna"`)
	_, _, err = reviewed(t, "replicasets", "anna", free, free)
	require.ErrorContains(t, err, "the gate does not handle the resource replicasets/")
	for _, wrong := range []string{`{`, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`,
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{}}`,
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"operation":"DELETE"}}`,
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"operation":"UPDATE"}}`} {
		_, err := Reviewer{}.Review([]byte(wrong))
		require.Error(t, err, wrong)
	}
}
