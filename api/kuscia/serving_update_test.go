package kuscia

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/kuscia/kusciapb"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

func update(t *testing.T, m *memory, text string) *kusciapb.Status {
	t.Helper()
	r := &kusciapb.UpdateServingRequest{}
	require.NoError(t, protojson.Unmarshal([]byte(text), r))
	answer, err := m.service().UpdateServing(t.Context(), r)
	require.NoError(t, err)
	return answer.GetStatus()
}

// running returns a memory with the serving s1 of alice, who has no resources, and bob, who has resources.
func running(t *testing.T) *memory {
	t.Helper()
	m := sample(t)
	require.Equal(t, "success",
		create(t, m, `{"serving_id":"s1","serving_input_config":"{\"a\":1}","initiator":"alice","parties":[
		{"domain_id":"alice","app_image":"sf-serving-image","update_strategy":{"type":"RollingUpdate","max_surge":"1","max_unavailable":"1"}},
		{"domain_id":"bob","role":"server","app_image":"two-ctr","replicas":2,"resources":[{"min_cpu":"100m"},{"container_name":"side","max_cpu":"1"}]}]}`).GetMessage())
	m.image(t, "two-new", strings.NewReplacer("side", "guard", "tag: v1", "tag: v2").Replace(twoContainers))
	m.writes = 0
	return m
}

func TestUpdateRefusals(t *testing.T) {
	t.Parallel()
	alice := func(more string) string {
		return `{"serving_id":"s1","serving_input_config":"changed","parties":[{"domain_id":"alice",` + more + `}]}`
	}
	bob := func(more string) string {
		return `{"serving_id":"s1","parties":[{"domain_id":"alice","replicas":5},{"domain_id":"bob","role":"server",` +
			more + `}]}`
	}
	cases := map[string]struct {
		reason, request string
		code            int32
		message         string
	}{
		"NoID": {"The ID is checked first.", `{"serving_input_config":"x"}`, 11100,
			"serving id can not be empty"},
		"LargeConfig": {"As at create.", `{"serving_id":"s1","serving_input_config":"` +
			strings.Repeat("x", serving.MaxInputConfig+1) + `"}`, 11100,
			"serving input config has 122881 bytes, which is more than the 122880 that fit an environment variable: " +
				"let the application fetch what is large"},
		"NotThere": {"With the message of the API server.", `{"serving_id":"nope","serving_input_config":"x"}`,
			11603, `kusciadeployments.kuscia.secretflow "nope" not found`},
		"OddID": {"An illegal name is reported as not found.", `{"serving_id":"a/b","serving_input_config":"x"}`,
			11603, `kusciadeployments.kuscia.secretflow "a/b" not found`},
		"Leaving": {"A serving that is being deleted no longer exists for clients.",
			`{"serving_id":"leaving","serving_input_config":"x"}`, 11603,
			`kusciadeployments.kuscia.secretflow "leaving" not found`},
		"NoParty": {"Parties cannot be added.", `{"serving_id":"s1","parties":[{"domain_id":"carol"}]}`, 11603,
			"party domain_id/role carol/ does not exist"},
		"OtherRole": {"The role is part of the party's key.", `{"serving_id":"s1","parties":[{"domain_id":"bob"}]}`,
			11603, "party domain_id/role bob/ does not exist"},
		"NoImage": {"A changed AppImage must exist.", alice(`"app_image":"nope"`), 11603,
			`can not get appimage nope from cluster, appimages.kuscia.secretflow "nope" not found`},
		"NoType": {"A strategy without a type is an error.", alice(`"update_strategy":{}`), 11603,
			"update strategy type should be Recreate or RollingUpdate for party/role alice/"},
		"NoContainer": {"For a party without resources, as at create.",
			alice(`"resources":[{"container_name":"zz","min_cpu":"1"}]`), 11603,
			"container_name zz of party domainID/role alice/ resources doesn't exist in app image sf-serving-image"},
		"NoContainerOfBob": {"Kuscia accepts and ignores the entry if the party has resources already.",
			bob(`"resources":[{"container_name":"zz","min_cpu":"1"}]`), 11603,
			"container_name zz of party domainID/role bob/server resources doesn't exist in app image two-ctr"},
		"BadQuantity": {"An error of the second party also prevents the change of the first.",
			bob(`"resources":[{"min_cpu":"x"}]`), 11603,
			"resource min_cpu x format is invalid for party domain_id/role bob/server, " + quantityRule},
		"MinAboveMax": {"Compared with the party's existing limit: side may use 1.",
			bob(`"resources":[{"container_name":"side","min_cpu":"2"}]`), 11603,
			"party bob/server: container side asks for 2 of cpu and may use only 1: the minimum must not be above " +
				"the maximum"},
		"OtherTemplate": {"The other AppImage has no template for the role.", alice(`"app_image":"two-ctr"`), 11603,
			`can not get deploy template from appimage two-ctr: it has none for role "" of party alice`},
		"Negative": {"A negative number is illegal.", alice(`"replicas":-1`), 11603,
			"party alice: replicas must not be negative, but -1 are requested"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := running(t)
			if name == "OtherTemplate" {
				m.images["two-ctr"].Spec.DeployTemplates = append(m.images["two-ctr"].Spec.DeployTemplates,
					m.images["two-ctr"].Spec.DeployTemplates[0])
				m.images["two-ctr"].Spec.DeployTemplates[0].Spec.Containers = nil
				m.images["two-ctr"].Spec.DeployTemplates = m.images["two-ctr"].Spec.DeployTemplates[:1]
			}
			now := metav1.Now()
			m.servings["leaving"] = &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: "leaving",
				DeletionTimestamp: &now}}
			status := update(t, m, c.request)
			require.Equal(t, c.code, status.GetCode(), "%s %s", c.reason, status.GetMessage())
			require.Equal(t, c.message, status.GetMessage(), c.reason)
			require.Zero(t, m.writes, "all or nothing")
		})
	}
}

func TestUpdateServing_ChangesOnlyRequestedFields(t *testing.T) {
	t.Parallel()
	m := running(t)
	before := m.servings["s1"].DeepCopy()
	require.Equal(t, "success",
		update(t, m,
			`{"serving_id":"s1","parties":[{"domain_id":"bob","role":"server","replicas":0,"service_name_prefix":"ignored",
		"update_strategy":{"type":"RollingUpdate","max_surge":"2"},"resources":[{"max_memory":"1Gi"},{"container_name":"side","min_cpu":"0.2"}]}]}`).GetMessage())
	after := m.servings["s1"]
	require.Equal(t, before.Spec.Parties[0], after.Spec.Parties[0], "other parties do not change")
	require.Equal(t, before.Spec.InputConfig, after.Spec.InputConfig, "an empty configuration changes nothing")
	bob := after.Spec.Parties[1]
	require.EqualValues(t, 0, *bob.Template.Replicas, "an explicit 0 is stored")
	require.Empty(t, bob.ServiceNamePrefix, "a prefix cannot be changed")
	require.Equal(t, "2", bob.Template.Strategy.RollingUpdate.MaxSurge.String())
	require.Equal(t, "25%", bob.Template.Strategy.RollingUpdate.MaxUnavailable.String(),
		"a strategy replaces the stored one, with defaults")
	version := serving.Snapshot(after, map[string]kuscia.AppImageSpec{"two-ctr": m.images["two-ctr"].Spec})
	require.Equal(t, []serving.ResourceRow{{Container: "main", MinCPU: "100m", MaxMemory: "1Gi"},
		{Container: "side", MinCPU: "200m", MaxCPU: "1"}},
		version.Resources(1), "a named entry applies to its container only, the other one to the rest, and both "+
			"change single fields")
}

func TestUpdateServing_AddsResources_WhenPartyHasNone(t *testing.T) {
	t.Parallel()
	m := running(t)
	require.Equal(t, "success",
		update(t, m,
			`{"serving_id":"s1","parties":[{"domain_id":"alice","resources":[{"max_cpu":"1"}]}]}`).GetMessage())
	require.Equal(t, "1", m.servings["s1"].Spec.Parties[0].Template.Spec.Containers[0].Resources.Limits.Cpu().String())
}

func TestUpdateServing_ChangesAppImage(t *testing.T) {
	t.Parallel()
	m := running(t)
	require.Equal(t, "success",
		update(t, m,
			`{"serving_id":"s1","parties":[{"domain_id":"bob","role":"server","app_image":"two-new"}]}`).GetMessage())
	bob := m.servings["s1"].Spec.Parties[1]
	require.Equal(t, "two-new", bob.AppImageRef)
	require.Len(t, bob.Template.Spec.Containers, 1, "resources of removed containers are removed")
	require.Equal(t, "main", bob.Template.Spec.Containers[0].Name)
	require.EqualValues(t, 2, *bob.Template.Replicas)
}

func TestUpdateServing_DoesNotWrite_WhenNothingChanges(t *testing.T) {
	t.Parallel()
	m := running(t)
	require.Equal(t, "success", update(t, m, `{"serving_id":"nope"}`).GetMessage(),
		"an empty request succeeds, as in Kuscia")
	require.Equal(t, "success",
		update(t, m,
			`{"serving_id":"s1","serving_input_config":"{\"a\":1}","parties":[{"domain_id":"bob","role":"server","replicas":2,
		"app_image":"two-ctr","resources":[{"min_cpu":"0.1"}]}]}`).GetMessage())
	require.Zero(t, m.writes, "0.1 equals 100m, and an unchanged serving gets no new generation")
}

// markServed sets the status of a serving whose requested version, with the current AppImages, is served.
func markServed(t *testing.T, m *memory) {
	t.Helper()
	kd := m.servings["s1"]
	version := versionNow(m)
	packed, err := version.Pack()
	require.NoError(t, err)
	digest, err := version.Digest()
	require.NoError(t, err)
	kd.Status = kuscia.KusciaDeploymentStatus{Phase: kuscia.PhaseAvailable, AvailableParties: 2,
		ObservedGeneration: kd.Generation,
		Operation: &kuscia.Operation{Kind: serving.KindUpdate, Generation: kd.Generation, Version: digest,
			Done: true},
		Served: &kuscia.Served{Generation: kd.Generation, Digest: digest, Version: packed}}
}

// versionNow returns the requested version of the serving, with the current AppImages.
func versionNow(m *memory) serving.Version {
	images := map[string]kuscia.AppImageSpec{}
	for name, image := range m.images {
		images[name] = image.Spec
	}
	return serving.Snapshot(m.servings["s1"], images)
}

func TestUpdateServing_RollsOutEditedAppImage(t *testing.T) {
	t.Parallel()
	const again = `{"serving_id":"s1","serving_input_config":"{\"a\":1}","parties":[{"domain_id":"bob","role":"server","replicas":2,"app_image":"two-ctr"}]}`
	m := running(t)
	ask := func(writes int, reason string) {
		t.Helper()
		m.writes = 0
		require.Equal(t, "success", update(t, m, again).GetMessage())
		require.Equal(t, writes, m.writes, reason)
	}
	m.images["two-ctr"].Spec.Image.Tag = "v2"
	ask(0, "no version is served yet: the running operation continues with its own version")
	markServed(t, m)
	before := m.servings["s1"].DeepCopy()
	ask(0, "the served version equals the requested one")

	m.images["two-ctr"].Spec.Image.Tag = "v3"
	ask(1, "the AppImage was edited: an update applies its current version")
	after := m.servings["s1"]
	require.Greater(t, after.Generation, before.Generation)
	require.NotEmpty(t, after.Spec.Revision)
	after = after.DeepCopy()
	after.Spec.Revision = ""
	require.Equal(t, before.Spec, after.Spec, "nothing else changes")
	ask(0, "its operation has not begun yet")

	kd := m.servings["s1"]
	digest, err := versionNow(m).Digest()
	require.NoError(t, err)
	kd.Status.ObservedGeneration, kd.Status.Operation = kd.Generation,
		&kuscia.Operation{Kind: serving.KindUpdate, Generation: kd.Generation, Version: digest}
	ask(0, "its operation is running")
	m.images["two-ctr"].Spec.Image.Tag = "v4"
	ask(1, "the running operation differs from the requested version")
	markServed(t, m)
	ask(0, "it is served")
	m.images["two-ctr"].Spec.Image.Tag = "v3"
	ask(1, "an AppImage that returns to an earlier version is edited as well")
	markServed(t, m)

	delete(m.images, "two-new")
	m.images["two-ctr"].Spec.DeployTemplates[0].Role = "other"
	require.EqualValues(t, 11603, update(t, m, again).GetCode(),
		"an AppImage that no longer fits the serving is refused")
	delete(m.images, "two-ctr")
	m.writes = 0
	require.Equal(t, "success", update(t, m, `{"serving_id":"s1","serving_input_config":"{\"a\":1}"}`).GetMessage())
	require.Zero(t, m.writes, "a deleted AppImage does not count as edited: the served version continues")
}

func TestUpdateServing_Retries_WhenConflict(t *testing.T) {
	t.Parallel()
	m := running(t)
	m.lostRaces = 2
	require.Equal(t, "success", update(t, m, `{"serving_id":"s1","serving_input_config":"new"}`).GetMessage(),
		"it is retried on the current object")
	require.Equal(t, "new", m.servings["s1"].Spec.InputConfig)
	m.lostRaces = 100
	require.EqualValues(t, 11603, update(t, m, `{"serving_id":"s1","serving_input_config":"newer"}`).GetCode(),
		"but not forever")
}

// rolledBack returns a memory with a serving whose update of the configuration and of bob's replicas was rolled back.
func rolledBack(t *testing.T) *memory {
	t.Helper()
	m := running(t)
	kd := m.servings["s1"]
	images := map[string]kuscia.AppImageSpec{"two-ctr": m.images["two-ctr"].Spec,
		"sf-serving-image": m.images["sf-serving-image"].Spec}
	packed, err := serving.Snapshot(kd, images).Pack()
	require.NoError(t, err)
	require.Equal(t, "success",
		update(t, m,
			`{"serving_id":"s1","serving_input_config":"bad","parties":[{"domain_id":"bob","role":"server","replicas":9}]}`).GetMessage())
	kd = m.servings["s1"]
	kd.Status = kuscia.KusciaDeploymentStatus{Phase: kuscia.PhaseAvailable, Reason: "UpdateRolledBack",
		Message: "party bob: no such image", AvailableParties: 2,
		ObservedGeneration: kd.Generation, Served: &kuscia.Served{Generation: 1, Version: packed}}
	return m
}

func TestUpdateServing_ChangesServedVersion_AfterRollback(t *testing.T) {
	t.Parallel()
	m := rolledBack(t)
	require.Equal(t, "success",
		update(t, m, `{"serving_id":"s1","parties":[{"domain_id":"alice","replicas":3}]}`).GetMessage())
	spec := m.servings["s1"].Spec
	require.Equal(t, `{"a":1}`, spec.InputConfig, "a rolled back change is not retried by an unrelated one")
	require.EqualValues(t, 2, *spec.Parties[1].Template.Replicas)
	require.EqualValues(t, 3, *spec.Parties[0].Template.Replicas)
	require.EqualValues(t, 3, query(t, m, "s1").GetData().GetParties()[0].GetReplicas(), "a query shows it at once")

	require.Equal(t, "success", update(t, m, `{"serving_id":"s1","serving_input_config":"newer"}`).GetMessage())
	spec = m.servings["s1"].Spec
	require.Equal(t, "newer", spec.InputConfig)
	require.EqualValues(t, 3, *spec.Parties[0].Template.Replicas, "an earlier change is not lost by a quick later one")
}

func TestUpdateServing_CanRepeatRolledBackUpdate(t *testing.T) {
	t.Parallel()
	m := rolledBack(t)
	before := m.servings["s1"].DeepCopy()
	again := `{"serving_id":"s1","serving_input_config":"bad","parties":[{"domain_id":"bob","role":"server","replicas":9}]}`
	require.Equal(t, "success", update(t, m, again).GetMessage())
	after := m.servings["s1"].DeepCopy()
	require.Equal(t, before.Generation+1, after.Generation, "it is a new generation, for which an operation starts")
	after.Spec.Revision = before.Spec.Revision
	require.Equal(t, before.Spec, after.Spec, "nothing else changes")
	require.Equal(t, "Progressing", query(t, m, "s1").GetData().GetStatus().GetState())

	m = rolledBack(t)
	before = m.servings["s1"].DeepCopy()
	require.Equal(t, "success", update(t, m, `{"serving_id":"s1","serving_input_config":"{\"a\":1}"}`).GetMessage())
	require.Greater(t, m.servings["s1"].Generation, before.Generation, "the served version becomes the requested one")
	require.Equal(t, `{"a":1}`, m.servings["s1"].Spec.InputConfig)
}

func TestDeleteServing(t *testing.T) {
	t.Parallel()
	m := running(t)
	ask := func(id string) *kusciapb.Status {
		answer, err := m.service().DeleteServing(t.Context(), &kusciapb.DeleteServingRequest{ServingId: id})
		require.NoError(t, err)
		return answer.GetStatus()
	}
	require.Equal(t, "serving id can not be empty", ask("").GetMessage())
	require.EqualValues(t, 11100, ask("").GetCode())
	require.EqualValues(t, 11604, ask("nope").GetCode())
	require.Equal(t, `kusciadeployments.kuscia.secretflow "nope" not found`, ask("nope").GetMessage())

	m.servings["s1"].Finalizers = []string{kuscia.Finalizer}
	require.Equal(t, "success", ask("s1").GetMessage(), "it returns at once, before the parties are cleaned up")
	require.NotNil(t, m.servings["s1"].DeletionTimestamp)
	require.Equal(t, `kusciadeployments.kuscia.secretflow "s1" not found`, ask("s1").GetMessage())
	shown, err := m.service().QueryServing(t.Context(), &kusciapb.QueryServingRequest{ServingId: "s1"})
	require.NoError(t, err)
	require.EqualValues(t, 11601, shown.GetStatus().GetCode())
	require.EqualValues(t, 11600,
		create(t, m,
			`{"serving_id":"s1","initiator":"alice","parties":[{"domain_id":"alice","app_image":"sf-serving-image"}]}`).GetCode(),
		"clients repeat a create until the old serving is deleted")
	delete(m.servings, "s1")
	require.Zero(t,
		create(t, m,
			`{"serving_id":"s1","initiator":"alice","parties":[{"domain_id":"alice","app_image":"sf-serving-image"}]}`).GetCode())
}

func TestUpdateServing_RetriesFailedCreation(t *testing.T) {
	t.Parallel()
	const again = `{"serving_id":"s1","serving_input_config":"{\"a\":1}"}`
	m := running(t)
	kd := m.servings["s1"]
	ask := func(writes int, reason string) {
		t.Helper()
		m.writes = 0
		require.Equal(t, "success", update(t, m, again).GetMessage())
		require.Equal(t, writes, m.writes, reason)
		kd = m.servings["s1"]
	}
	for range 2 {
		kd.Status.ObservedGeneration, kd.Status.Operation = kd.Generation,
			&kuscia.Operation{Kind: serving.KindCreate, Generation: kd.Generation}
		ask(0, "the creation is running")
		before := kd.Generation
		kd.Status.Operation.Done, kd.Status.Operation.Reason = true, serving.ReasonPartyFailed
		ask(1, "a party refused it: after a fix, the client sends it again")
		require.Greater(t, kd.Generation, before, "it is a new generation, for which an operation starts")
		ask(0, "its operation has not begun yet")
	}
}
