package strategy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A stored object may contain what a request must not: it is read as other controllers of the kind read it.
func TestDecodeObject_IgnoresUnknownAndStaleAnnotations(t *testing.T) {
	t.Parallel()
	const before,
		after = `{"apiVersion":"rollouts.kruise.io/v1beta1","kind":"Rollout","metadata":{"name":"a","namespace":"b","annotations":{`,
		`}},"spec":{"workloadRef":{"apiVersion":"apps/v1","kind":"StatefulSet","name":"e"},"strategy":{"canary":{"steps":[{"replicas":1,"pause":{"duration":-5}},{"replicas":2}]}}}}`
	for reason, annotation := range map[string]string{
		"a style left over from v1alpha1": `"rollouts.kruise.io/rolling-style":"canary"`,
		"an unknown style":                `"rollouts.kruise.io/rolling-style":"blue"`,
		"two styles":                      `"rollouts.kruise.io/rolling-style":"canary","rollouts.kruise.io/rolling-type":"partition"`,
		"an unknown annotation":           `"rollouts.kruise.io/other":"a"`,
	} {
		got, _, wrong := DecodeObject([]byte(before + annotation + after))
		require.NoError(t, wrong.Err(), reason)
		require.Equal(t, StylePartition, got.Strategy.Style, reason)
		require.EqualValues(t, 0, *got.Strategy.Steps[0].PauseSeconds, "a negative pause ends at once")
		require.Nil(t, got.Strategy.Steps[1].PauseSeconds)
	}
}

// The API specification shows entries that share a Service: all of them apply to a stored object. A routed object may
// appear only once.
func TestDecodeObject_RoutingsMayShareService_ButNotIngress(t *testing.T) {
	t.Parallel()
	const object = `{"apiVersion":"rollouts.kruise.io/v1beta1","kind":"Rollout","metadata":{"name":"a","namespace":"b"},"spec":{
		"workloadRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"e"},"strategy":{"canary":{"steps":[{"replicas":1}],"trafficRoutings":[
		{"service":"e","ingress":{"name":"e"}},{"service":"e","gateway":{"httpRouteName":"e"}}%s]}}}}`
	got, _, wrong := DecodeObject(fmt.Appendf(nil, object, ""))
	require.NoError(t, wrong.Err())
	require.Len(t, got.Strategy.Routings, 2)
	_, _, wrong = DecodeObject(fmt.Appendf(nil, object, `,{"service":"e","ingress":{"name":"e"}}`))
	require.ErrorContains(t, wrong.Err(), "names Ingress e, which", "a route is listed once")
}
