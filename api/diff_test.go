package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/strictyaml"
)

func reasons(found []strictyaml.FieldError) (all []string) {
	for _, one := range found {
		all = append(all, one.Reason)
	}
	return all
}

// A diff and an execution return the same warning for a workload held by a rollout: the rollout may have ended when the
// item begins.
func TestDiff_WarnsLikeExecute_WhenRolloutHoldsWorkload(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.call("PUT", "/api/v1/services/off",
		`{"workloads":[{"namespace":"demo","workloadRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"off"}}],`+
			`"package":{"container":"app","mountPath":"/app"},"strategy":{"canary":{"steps":[{"replicas":1},{"replicas":"100%"}]}}}`, jsonBody).is(http.StatusCreated, "it is new")
	e.call("PUT", "/api/v1/plans/shop", "deployPlanItems:\n- {serviceId: off, deployment: HTTP_UPLOAD_DEPLOY, "+
		"httpSrcUri: 'https://packages.example/off.zip'}\n",
		yamlBody).is(http.StatusCreated, "it is new")
	e.party.refuse("off", "Deployment demo/off is in the middle of a rollout")
	e.rollouts.answers(rollout.PreflightResult{Holder: "rollout/default/demo/off", HeldObject: "Deployment demo/off"})
	const held = "Deployment demo/off is held by the release rollout/default/demo/off: the item fails if that still " +
		"runs when it begins"

	diff := decode[schema.PlanDiff](e.call("POST", "/api/v1/plans/shop/diff", "").is(http.StatusOK,
		"an execution would be accepted"))
	require.Equal(t, []string{held}, reasons(diff.Warnings))
	require.Equal(t, "HTTP_UPLOAD_DEPLOY off", diff.Items[0].Workloads[0].Summary, "the known part is shown")
	started := decode[schema.ExecuteResult](e.call("POST", "/api/v1/plans/shop/execute", "").is(http.StatusAccepted,
		"it is accepted"))
	require.Equal(t, []string{held}, reasons(started.Warnings))

	e.call("PUT", "/api/v1/plans/other", "deployPlanItems:\n- {serviceId: off, deployment: HTTP_UPLOAD_DEPLOY, "+
		"httpSrcUri: 'http://127.0.0.1/off.zip'}\n",
		yamlBody).is(http.StatusCreated, "it is new")
	for field, points := range map[string]string{"httpSrcUri": "deployPlanItems[0].httpSrcUri",
		"package": "deployPlanItems[0].serviceId"} {
		e.rollouts.answers(rollout.PreflightResult{Refusals: []rollout.Refusal{{Field: field, Reason: "no"}}})
		for _, operation := range []string{"diff", "execute"} {
			refused := e.call("POST", "/api/v1/plans/other/"+operation, "").is(http.StatusUnprocessableEntity,
				"the rollout would be refused")
			require.Equal(t, []schema.FieldProblem{{Item: 1, Field: points, Reason: "no"}}, refused.problem().Errors,
				"the error names a field of the item")
		}
	}
}

// The signature in a package's URL is kept in etcd, by the plan and by the records of its tasks: every answer says so.
func TestPlan_WarnsOfSignedPackage(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.call("PUT", "/api/v1/services/off",
		`{"workloads":[{"namespace":"demo","workloadRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"off"}}],`+
			`"package":{"container":"app","mountPath":"/app"}}`, jsonBody).is(http.StatusCreated, "it is new")
	const document = "deployPlanItems:\n- {serviceId: off, deployment: HTTP_UPLOAD_DEPLOY, " +
		"httpSrcUri: 'https://packages.example/off.zip?X-Amz-Signature=S3CRET'}\n"
	warned := func(in string, warnings []schema.FieldProblem) {
		t.Helper()
		require.Len(t, warnings, 1, in)
		require.Equal(t, "deployPlanItems[0].httpSrcUri", warnings[0].Field, in)
		require.Contains(t, warnings[0].Reason, "has the parameter x-amz-signature", in)
		require.Contains(t, warnings[0].Reason, "package.credentials of service off", in)
		require.NotContains(t, warnings[0].Reason, "S3CRET", in)
	}
	warned("validate", decode[schema.ValidateResult](e.call("POST", "/api/v1/plans/validate", document,
		yamlBody).is(http.StatusOK, "it is valid")).Warnings)
	warned("put", decode[schema.PutPlanResult](e.call("PUT", "/api/v1/plans/signed", document,
		yamlBody).is(http.StatusCreated, "it is new")).Warnings)
	warned("diff", decode[schema.PlanDiff](e.call("POST", "/api/v1/plans/signed/diff", "").is(http.StatusOK,
		"it can be executed")).Warnings)
	warned("execute", decode[schema.ExecuteResult](e.call("POST", "/api/v1/plans/signed/execute", "").is(
		http.StatusAccepted, "it is executed as before")).Warnings)
}

// A diff is possible while a task of the plan runs; an execution is refused then.
func TestDiff_Warns_WhenTaskOfPlanIsLive(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 1")
	e.party.hold("111")
	diff := func() schema.PlanDiff {
		return decode[schema.PlanDiff](e.call("POST", "/api/v1/plans/shop/diff", "").is(http.StatusOK,
			"nothing refuses it"))
	}
	require.Empty(t, diff().Warnings)
	id := e.execute("shop")
	e.waitState(id, "Running")
	require.Equal(t, []string{"task " + id + " of plan shop is Running: an execution is refused until it has ended"},
		reasons(diff().Warnings))
	e.party.open()
	e.waitState(id, "Succeeded")
	require.Empty(t, diff().Warnings)
}

// Execution, diff and validation of a plan warn that it would wait, and which times are in the past.
func TestPlan_WarnsOfWaits(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putService("111")
	const restart = "deployPlanItems:\n- {serviceId: 111, deployment: RESTART}\n"
	begin := time.Now().UTC().Add(-time.Hour).Format(time.RFC3339)
	frozen := "freezes: [{start: '" + begin + "', duration: 4h}]\n" + restart
	e.call("PUT", "/api/v1/plans/frozen", frozen, yamlBody).is(http.StatusCreated, "it is new")
	held := func(warnings []schema.FieldProblem, why string) {
		t.Helper()
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0].Reason, "nothing begins before ")
		require.Contains(t, warnings[0].Reason, why)
	}
	freeze := ": a freeze (from " + begin + " for 4h) lasts until "
	held(decode[schema.ValidateResult](e.call("POST", "/api/v1/plans/validate", frozen, yamlBody).is(http.StatusOK,
		"it is valid")).Warnings, freeze)
	held(decode[schema.PlanDiff](e.call("POST", "/api/v1/plans/frozen/diff", "").is(http.StatusOK,
		"it can be executed")).Warnings, freeze)
	held(decode[schema.ExecuteResult](e.call("POST", "/api/v1/plans/frozen/execute", "").is(http.StatusAccepted,
		"it waits")).Warnings, freeze)

	e.call("PUT", "/api/v1/plans/never", frozen, yamlBody).is(http.StatusCreated, "it is new")
	e.putPlan("later", "111 1")
	later := time.Now().UTC().Add(48 * time.Hour).Format(time.RFC3339)
	held(decode[schema.ExecuteResult](e.call("POST", "/api/v1/plans/later/execute", `{"notBefore":"`+later+`"}`,
		jsonBody).is(http.StatusAccepted, "it waits")).Warnings,
		later+": the time to begin (notBefore) is "+later)

	e.putPlan("past", "111 1")
	past := decode[schema.ExecuteResult](e.call("POST", "/api/v1/plans/past/execute",
		`{"notBefore":"2025-12-01T06:00:00+01:00"}`, jsonBody).is(http.StatusAccepted, "it begins at once"))
	require.Equal(t, []schema.FieldProblem{{Field: "notBefore",
		Reason: "notBefore 2025-12-01T06:00:00+01:00 is in the past and has no effect"}}, past.Warnings)

	for own, says := range map[string]string{
		`{"windows":[{"start":"2020-01-01T00:00:00Z","duration":"1h"}]}`: "windows: the times of this execution, not " +
			"those of the plan, never open again",
		`{"windows":[{"start":"` + begin + `","duration":"2h"}]}`: "windows: the times of this execution and those " +
			"of the plan together never open again",
	} {
		refused := e.call("POST", "/api/v1/plans/never/execute", own, jsonBody).is(http.StatusUnprocessableEntity,
			"it would wait forever")
		require.Contains(t, refused.problem().Detail, says)
	}

	e.call("PUT", "/api/v1/services/222",
		`{"workloads":[{"namespace":"demo","workloadRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"off"}}],`+
			`"package":{"container":"app","mountPath":"/app"},"strategy":{"canary":{"steps":[{"replicas":"100%"}]}},"policy":{"notBefore":"`+later+`"}}`, jsonBody)
	e.call("PUT", "/api/v1/plans/policy", "deployPlanItems:\n- {serviceId: 222, deployment: HTTP_UPLOAD_DEPLOY, "+
		"httpSrcUri: 'https://packages.example/off.zip'}\n", yamlBody)
	held(decode[schema.PlanDiff](e.call("POST", "/api/v1/plans/policy/diff", "").is(http.StatusOK,
		"it can be executed")).Warnings, "by the policy of service 222, nothing begins before "+later)
}
