package kuscia

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/instant"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

func query(t *testing.T, m *memory, id string) *kusciapb.QueryServingResponse {
	t.Helper()
	answer, err := m.service().QueryServing(t.Context(), &kusciapb.QueryServingRequest{ServingId: id})
	require.NoError(t, err)
	return answer
}

func TestQueryRefusals(t *testing.T) {
	t.Parallel()
	m := running(t)
	require.EqualValues(t, 11100, query(t, m, "").GetStatus().GetCode())
	require.Equal(t, "serving id can not be empty", query(t, m, "").GetStatus().GetMessage())
	missing := query(t, m, "nope")
	require.EqualValues(t, 11601, missing.GetStatus().GetCode())
	require.Equal(t, `kusciadeployments.kuscia.secretflow "nope" not found`, missing.GetStatus().GetMessage())
	require.Nil(t, missing.GetData())
	m.broken = failure.New(failure.Unreachable, "serving s1: the home cluster cannot do it now: down")
	broken := query(t, m, "s1")
	require.EqualValues(t, 11601, broken.GetStatus().GetCode())
	require.Equal(t, "serving s1: the home cluster cannot do it now: down", broken.GetStatus().GetMessage(),
		"the message names what is unreachable")
}

func TestQueryServing_ReturnsPending_BeforeFirstOperation(t *testing.T) {
	t.Parallel()
	status := query(t, running(t), "s1").GetData().GetStatus()
	require.Equal(t, "Pending", status.GetState(), "there is a status from the beginning")
	require.Equal(t, "2024-01-17T10:18:02Z", status.GetCreateTime())
	require.EqualValues(t, 2, status.GetTotalParties())
	bob := status.GetPartyStatuses()[1]
	require.Equal(t, "Pending", bob.GetState())
	require.Equal(t, []int32{2, 0, 2, 0}, []int32{bob.GetReplicas(), bob.GetAvailableReplicas(),
		bob.GetUnavailableReplicas(), bob.GetUpdatedReplicas()})
	require.Empty(t, bob.GetCreateTime(), "its Deployment does not exist yet")
}

// observed is the time at which a party was observed.
var observed = instant.MicroOf(created)

func TestQueryServing_WhenPartyNeverObserved(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		status kuscia.PartyDeploymentStatus
		state  string
	}{
		"Begun": {"An operation has just begun with the party.",
			kuscia.PartyDeploymentStatus{Role: "server", Queue: "q"}, "Pending"},
		"Away": {"The party's worker is known to be unreachable.",
			kuscia.PartyDeploymentStatus{Phase: kuscia.PhaseUnknown, Unreachable: "silent"}, "Unknown"},
		"Failed": {"The party's part is known to have failed.",
			kuscia.PartyDeploymentStatus{Phase: kuscia.PhaseFailed, Failure: "no namespace"}, "Failed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := running(t)
			m.servings["s1"].Status = kuscia.KusciaDeploymentStatus{Phase: kuscia.PhaseProgressing,
				ObservedGeneration: 1,
				PartyDeploymentStatuses: map[string]map[string]kuscia.PartyDeploymentStatus{
					"bob": {"s1-server": c.status}}}
			bob := query(t, m, "s1").GetData().GetStatus().GetPartyStatuses()[1]
			require.Equal(t, c.state, bob.GetState(), c.reason)
			require.Equal(t, []int32{2, 0, 2, 0}, []int32{bob.GetReplicas(), bob.GetAvailableReplicas(),
				bob.GetUnavailableReplicas(), bob.GetUpdatedReplicas()},
				"none of the requested pods is available")
		})
	}
}

func TestQueryShowsTheStatus(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.servings["s1"].Status = kuscia.KusciaDeploymentStatus{
		Phase: kuscia.PhasePartialAvailable, Reason: "r", Message: "m", TotalParties: 2, AvailableParties: 2,
		ObservedGeneration: 1,
		PartyDeploymentStatuses: map[string]map[string]kuscia.PartyDeploymentStatus{
			"alice": {"s1": {Phase: kuscia.PhaseAvailable, Replicas: 1, AvailableReplicas: 1, UpdatedReplicas: 1,
				ObservedAt: &observed, CreationTimestamp: &metav1.Time{Time: created}},
				"another": {Phase: kuscia.PhaseFailed}},
			"bob": {"s1-server": {Phase: kuscia.PhasePartialAvailable, Role: "server", Replicas: 2,
				AvailableReplicas: 1, UnavailableReplicas: 1, UpdatedReplicas: 2,
				ObservedAt: &observed}},
			"carol": {"s1": {Phase: kuscia.PhaseAvailable}},
		}}
	status := query(t, m, "s1").GetData().GetStatus()
	require.Equal(t, []string{"PartialAvailable", "r", "m"},
		[]string{status.GetState(), status.GetReason(), status.GetMessage()})
	require.EqualValues(t, 2, status.GetAvailableParties())
	require.Len(t, status.GetPartyStatuses(), 2, "parties of the spec, in its order, and no others")
	alice, bob := status.GetPartyStatuses()[0], status.GetPartyStatuses()[1]
	require.Equal(t, []string{"alice", "", "Available", "2024-01-17T10:18:02Z"},
		[]string{alice.GetDomainId(), alice.GetRole(), alice.GetState(), alice.GetCreateTime()})
	require.Equal(t, []string{"bob", "server", "PartialAvailable"},
		[]string{bob.GetDomainId(), bob.GetRole(), bob.GetState()})
	require.Equal(t, []int32{2, 1, 1, 2}, []int32{bob.GetReplicas(), bob.GetAvailableReplicas(),
		bob.GetUnavailableReplicas(), bob.GetUpdatedReplicas()})
	require.Len(t, alice.GetEndpoints(), 3)
	require.Equal(t, "s1-service.alice.svc", alice.GetEndpoints()[0].GetEndpoint(),
		"in the order of the template; Cluster without a port")
	require.Equal(t, "s1-internal.alice.svc:53510", alice.GetEndpoints()[1].GetEndpoint())
	require.Equal(t, "Domain", alice.GetEndpoints()[2].GetScope())

	m.servings["s1"].Status.Phase = "Strange"
	require.Equal(t, "Unknown", query(t, m, "s1").GetData().GetStatus().GetState(),
		"an unknown phase is shown as Unknown")
}

func TestQueryServing_IsProgressing_AfterUpdate(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.servings["s1"].Status = kuscia.KusciaDeploymentStatus{Phase: kuscia.PhaseAvailable, AvailableParties: 2,
		ObservedGeneration: 1,
		PartyDeploymentStatuses: map[string]map[string]kuscia.PartyDeploymentStatus{
			"alice": {"s1": {Phase: kuscia.PhaseAvailable, Replicas: 1, UpdatedReplicas: 1, ObservedAt: &observed}}}}
	require.Equal(t, "Available", query(t, m, "s1").GetData().GetStatus().GetState())
	require.Equal(t, "success", update(t, m, `{"serving_id":"s1","serving_input_config":"new"}`).GetMessage())
	status := query(t, m, "s1").GetData().GetStatus()
	require.Equal(t, "Progressing", status.GetState(),
		"a client that polls for Available must not see the state before the update")
	require.Zero(t, status.GetAvailableParties())
	require.Equal(t, "Progressing", status.GetPartyStatuses()[0].GetState())
	require.Zero(t, status.GetPartyStatuses()[0].GetUpdatedReplicas())
	require.Empty(t, status.GetReason())

	m.servings["s1"].Status.Refused = &kuscia.Refused{Generation: m.servings["s1"].Generation,
		Message: "no such AppImage"}
	status = query(t, m, "s1").GetData().GetStatus()
	require.Equal(t, []string{"Progressing", "ValidateFailed"}, []string{status.GetState(), status.GetReason()},
		"the running operation continues, and the refused generation cannot follow")
	require.Contains(t, status.GetMessage(), "no such AppImage")
}

func TestQueryServing_ShowsServedVersion_AfterRollback(t *testing.T) {
	t.Parallel()
	m := rolledBack(t)
	data := query(t, m, "s1").GetData()
	require.Equal(t, `{"a":1}`, data.GetServingInputConfig())
	require.EqualValues(t, 2, data.GetParties()[1].GetReplicas())
	require.Equal(t, []string{"Available", "UpdateRolledBack", "party bob: no such image"},
		[]string{data.GetStatus().GetState(), data.GetStatus().GetReason(), data.GetStatus().GetMessage()},
		"the state is that of the served version, the reason remains")
}

func TestQueryServing_WhenAppImageDeleted(t *testing.T) {
	t.Parallel()
	m := running(t)
	delete(m.images, "two-ctr")
	data := query(t, m, "s1").GetData()
	require.Len(t, data.GetParties(), 2, "a serving can be queried without its AppImage")
	require.Equal(t, "100m", data.GetParties()[1].GetResources()[0].GetMinCpu(), "its own resources are still known")

	served := rolledBack(t)
	served.servings["s1"].Status.Reason = ""
	delete(served.images, "two-ctr")
	require.NotEmpty(t, query(t, served, "s1").GetData().GetStatus().GetPartyStatuses()[1].GetEndpoints(),
		"the endpoints are known from the served version")
}

func TestBatchQuery(t *testing.T) {
	t.Parallel()
	m := running(t)
	ask := func(ids ...string) *kusciapb.BatchQueryServingStatusResponse {
		answer, err := m.service().BatchQueryServingStatus(t.Context(),
			&kusciapb.BatchQueryServingStatusRequest{ServingIds: ids})
		require.NoError(t, err)
		return answer
	}
	require.EqualValues(t, 11100, ask().GetStatus().GetCode())
	require.Equal(t, "serving ids can not be empty", ask().GetStatus().GetMessage())
	require.EqualValues(t, 11100, ask("s1", "").GetStatus().GetCode())
	require.Equal(t, "serving id can not be empty", ask("s1", "").GetStatus().GetMessage())
	require.NotNil(t, ask("nope").GetData())
	require.Empty(t, ask("nope").GetData().GetServings())

	require.Zero(t,
		create(t, m,
			`{"serving_id":"s2","initiator":"alice","parties":[{"domain_id":"alice","app_image":"sf-serving-image"}]}`).GetCode())
	var ids []string
	for _, one := range ask("s2", "nope", "s1", "s2").GetData().GetServings() {
		ids = append(ids, one.GetServingId())
		require.Equal(t, "Pending", one.GetStatus().GetState())
	}
	require.Equal(t, []string{"s2", "s1", "s2"}, ids,
		"the order of the request, including duplicates; missing servings are omitted")

	m.broken = failure.New(failure.Unreachable, "down")
	require.EqualValues(t, 11602, ask("s1").GetStatus().GetCode())
	require.Nil(t, ask("s1").GetData())
}
