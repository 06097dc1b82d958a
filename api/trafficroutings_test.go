package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
)

const trafficBody = `
apiVersion: rollouts.kruise.io/v1alpha1
kind: TrafficRouting
metadata: {name: mse}
spec:
  objectRef:
  - service: a
    ingress: {classType: nginx, name: a}
  strategy:
    matches:
    - headers: [{type: Exact, name: User-Agent, value: Android}]
`

func TestTrafficRoutings_CRUD(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	namespace := e.store.Namespace() // any namespace of the home cluster will do
	path := "/api/v1/trafficroutings/" + namespace + "/mse"
	e.call("GET", path, "").is(http.StatusNotFound, "it does not exist")
	e.call("DELETE", path, "").is(http.StatusNotFound, "it does not exist")
	e.call("PUT", path+"x", trafficBody, yamlBody).is(http.StatusBadRequest, "the document has another name")
	wrong := e.call("PUT", path, `{"objectRef":[{"service":"a"}],"strategy":{"weight":20},"colour":1}`,
		jsonBody).is(http.StatusBadRequest, "two mistakes")
	require.Contains(t, wrong.reasons(), "colour")
	e.call("PUT", "/api/v1/trafficroutings/no-such-namespace/mse", trafficBody, yamlBody).is(http.StatusNotFound,
		"no such namespace")

	created := decode[schema.PutTrafficRoutingResult](
		e.call("PUT", path, trafficBody, yamlBody).is(http.StatusCreated, "it is new"))
	require.True(t, created.Changed)
	require.False(t, decode[schema.PutTrafficRoutingResult](
		e.call("PUT", path, trafficBody, yamlBody).is(http.StatusOK, "it is unchanged")).Changed)
	found := decode[schema.TrafficRouting](e.call("GET", path, "").is(http.StatusOK, "it exists"))
	require.Contains(t, []schema.TrafficRoutingStatusPhase{"Initial", "Healthy"}, found.Status.Phase,
		"no release holds it")
	require.Contains(t, found.Spec, "objectRef")
	require.Len(t, decode[schema.TrafficRoutingList](
		e.call("GET", "/api/v1/trafficroutings?namespace="+namespace, "")).Items, 1)

	e.startRollout("x:2", "")
	claim := workload.Holder{WorkflowID: "rollout/default/shop/order",
		RunID: e.waitApproval().Workflow.RunID}.String()
	e.holdTraffic(namespace, claim, "rollout/default/shop/missing@run")
	held := e.call("DELETE", path, "").is(http.StatusConflict, "a rollout that runs holds it")
	require.Equal(t, []schema.FieldProblem{{Field: "status.holders", Reason: "is held by rollout/default/shop/order"}},
		held.problem().Errors, "the ended holder does not count")
	e.call("PUT", path,
		`{"objectRef":[{"service":"b","ingress":{"name":"b"}}],"strategy":{"requestHeaderModifier":{"set":[{"name":"x","value":"y"}]},"matches":[{"queryParams":[{"name":"a","value":"b"}]}]}}`, jsonBody).is(http.StatusConflict, "its routes are in use")
	e.call("PUT", path, trafficBody, yamlBody).is(http.StatusOK, "an unchanged document is accepted")

	e.holdTraffic(namespace, "rollout/default/shop/missing@run")
	e.call("PUT", path,
		`{"objectRef":[{"service":"b","ingress":{"name":"b"}}],"strategy":{"requestHeaderModifier":{"set":[{"name":"x","value":"y"}]},"matches":[{"queryParams":[{"name":"a","value":"b"}]}]}}`, jsonBody).is(http.StatusOK, "only an ended release holds it")
	changed := decode[schema.TrafficRouting](e.call("GET", path, ""))
	require.Equal(t, []any{map[string]any{"service": "b", "ingress": map[string]any{"name": "b"}}},
		changed.Spec["objectRef"], "the spec was replaced, not merged")
	e.call("DELETE", path, "").is(http.StatusNoContent, "only an ended release holds it")
	e.call("GET", path, "").is(http.StatusNotFound, "it was deleted, including its finalizer")
}

func TestRollout_WaitsForTrafficRouting_AndCanBeRolledBack(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	namespace := e.store.Namespace()
	e.call("PUT", "/api/v1/trafficroutings/"+namespace+"/mse", trafficBody, yamlBody).is(http.StatusCreated,
		"it is new")
	e.startRollout("x:2", "")
	e.holdTraffic(namespace, workload.Holder{WorkflowID: "rollout/default/shop/order",
		RunID: e.waitApproval().Workflow.RunID}.String())
	e.writeTraffic(namespace, func(found *v1alpha1.TrafficRouting) { found.Status.Phase = v1alpha1.TrafficFinalizing })

	e.call("POST", "/api/v1/rollouts", `{"namespace":"`+namespace+
		`","workloadRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"next"},"images":{"app":"x"},
		"strategy":{"canary":{"steps":[{"replicas":1}],"trafficRoutingRef":"mse"}}}`, jsonBody).is(http.StatusAccepted, "it can be started")
	path := "/api/v1/rollouts/" + namespace + "/next"
	seen := func() rollout.Status {
		return decode[rollout.Status](e.call("GET", path, "").is(http.StatusOK, "it exists"))
	}
	says := "TrafficRouting " + namespace + "/mse gives its routes back for rollout/default/shop/order"
	require.Eventually(t, func() bool {
		s := seen()
		return strings.Contains(s.Reason, says) && s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitTraffic &&
			strings.Contains(s.WaitingFor.Message, says)
	}, waitTimeout, pollInterval, "the reason names the awaited TrafficRouting and its holder")
	e.call("POST", path+"/rollback", "{}", jsonBody).is(http.StatusOK, "it is only waiting")
	require.Eventually(t, func() bool {
		return seen().Phase == rollout.PhaseRolledBack
	}, waitTimeout, pollInterval, "the wait ends at once")
}

// holdTraffic sets the holders of the TrafficRouting mse.
func (e *engine) holdTraffic(namespace string, claims ...string) {
	e.t.Helper()
	e.writeTraffic(namespace, func(found *v1alpha1.TrafficRouting) {
		found.Status = v1alpha1.TrafficRoutingStatus{Phase: v1alpha1.TrafficProgressing, Holders: claims}
	})
}

// writeTraffic changes the TrafficRouting mse with its guard finalizer. It retries, because any engine of the cluster
// may reset the holders in the meantime.
func (e *engine) writeTraffic(namespace string, change func(found *v1alpha1.TrafficRouting)) {
	e.t.Helper()
	require.NoError(e.t, failure.RetryOnConflict("TrafficRouting mse", func() error {
		found, err := e.store.GetTrafficRouting(e.t.Context(), namespace, "mse")
		if err != nil {
			return err
		}
		if err := e.store.GuardTraffic(e.t.Context(), found, true); err != nil {
			return err
		}
		change(found)
		return e.store.SetTrafficStatus(e.t.Context(), found)
	}))
}
