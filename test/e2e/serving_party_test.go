package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// alliance is a union whose parties have workers of their own, each with the permissions of deploy/rbac in its own namespace alone, at a centre with those
// of the centre.
type alliance struct {
	*union
	accounts map[string]harness.Account
	workers  map[string]*harness.Process
}

func ally(t *testing.T) *alliance {
	t.Helper()
	e := harness.Start(t, harness.Options{Kubeconfig: func(e *harness.Engine) string { return e.Account(t, "centre.yaml", e.Home).Kubeconfig }})
	a := &alliance{union: unite(t, e), accounts: map[string]harness.Account{}, workers: map[string]*harness.Process{}}
	for _, domain := range []string{a.alice, a.bob} {
		a.accounts[domain] = a.Account(t, "party.yaml", domain)
		a.Grant(t, "party-servings.yaml", domain)
		answer := a.Call(http.MethodPut, "/api/v1/parties/"+domain, "namespace: "+domain+"\n")
		require.Equal(t, http.StatusCreated, answer.Status, "%s", answer.Body)
	}
	return a
}

// work starts a party's worker.
func (a *alliance) work(domains ...string) {
	a.t.Helper()
	for _, domain := range domains {
		a.workers[domain] = a.PartyWorkerIn(domain, domain, a.accounts[domain].Kubeconfig)
	}
}

// waitAway waits until the status names an absent party, and says what is missing.
func (a *alliance) waitAway(id, domain string) {
	a.t.Helper()
	kd := a.WaitServing(id, "an absent "+domain, func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.PartyDeploymentStatuses[domain][id].Phase == kuscia.PhaseUnknown
	})
	require.Contains(a.t, kd.Status.Message+kd.Status.PartyDeploymentStatuses[domain][id].Message, "worker of queue", "it says what is missing: %+v", kd.Status)
}

// A party that is away when a serving is created is named, and catches up when it returns; the other one runs meanwhile.
func TestLongServingWaitsForAnAbsentParty(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	a := ally(t)
	a.work(a.alice)
	a.create("late", serving.Policy{})
	a.waitAway("late", a.bob)
	require.Eventually(t, func() bool {
		d := a.deployment(a.alice, "late")
		return d != nil && d.Status.AvailableReplicas == 2
	}, harness.Patience, harness.Tick, "alice does not wait for bob")
	require.Equal(t, "Unknown", a.query("late").Status.Parties[1].State)
	a.work(a.bob)
	kd := a.WaitServing("late", "Available", harness.ServingAvailable)
	a.Record(kd.Status.Operation.WorkflowID, "serving-absent-party")

	require.NoError(t, a.workers[a.bob].Stop()) // who takes leave is gone at once; TestLongServingUpdateWithAnAbsentParty kills it
	a.waitAway("late", a.bob)
	require.Equal(t, kuscia.PhaseUnknown, a.Serving(a.Home, "late").Status.Phase, "a quiet serving shows it too")
	a.remove("late")
	require.Eventually(t, func() bool { return a.Serving(a.Home, "late") == nil }, harness.Patience, harness.Tick, "a deletion does not wait for the absent")
	require.Zero(t, leftOf(t, a.Engine, a.alice, "late"))
	require.NotZero(t, leftOf(t, a.Engine, a.bob, "late"))

	// The name is free again at once. The deletion of the former serving is still open, under the ID that the second generation of the new one would have.
	a.create("late", serving.Policy{})
	a.update("late", a.better, a.better)
	a.WaitServing("late", "the update that was begun with", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.Operation != nil && kd.Status.Operation.Generation == 2
	})
	a.work(a.bob)
	a.WaitServing("late", "Available", harness.ServingAvailable)
	require.Equal(t, []string{"v2", "v2"}, []string{a.tag(a.alice, "late"), a.tag(a.bob, "late")}, "what was left of the former one is gone")
	a.remove("late")
	require.Eventually(t, func() bool { return a.Serving(a.Home, "late") == nil }, harness.Patience, harness.Tick)
	require.Zero(t, leftOf(t, a.Engine, a.alice, "late")+leftOf(t, a.Engine, a.bob, "late"))
}

// A worker that is killed in mid-update is waited for as long as the policy says; then everybody goes back, and it does so first thing on its return.
func TestLongServingUpdateWithAnAbsentParty(t *testing.T) {
	t.Parallel()
	harness.Long(t)
	a := ally(t)
	a.work(a.alice, a.bob)
	a.create("torn", serving.Policy{PartyDeadlineSeconds: 30})
	a.WaitServing("torn", "Available", harness.ServingAvailable)

	// Before the commit an absent party changes nothing.
	a.workers[a.bob].Kill()
	a.waitAway("torn", a.bob)
	a.update("torn", a.better, a.better)
	kd := a.WaitServing("torn", "the end of the wait", harness.ServingDone)
	require.Equal(t, serving.ReasonUpdateRolledBack, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "nothing was changed in any party")
	require.Equal(t, []string{"v1", "v1"}, []string{a.tag(a.alice, "torn"), a.tag(a.bob, "torn")})

	// In mid-update: bob's pods do not come up, and its worker dies meanwhile.
	a.work(a.bob)
	a.WaitServing("torn", "bob back", func(kd *kuscia.KusciaDeployment) bool { return kd.Status.Phase == kuscia.PhaseAvailable })
	a.update("torn", a.better, a.bad)
	require.Eventually(t, func() bool { return a.tag(a.bob, "torn") == "bad" }, harness.Patience, harness.Tick)
	a.workers[a.bob].Kill()
	a.waitAway("torn", a.bob)
	a.WaitServing("torn", "the way back", func(kd *kuscia.KusciaDeployment) bool { return kd.Status.Reason == serving.ReasonUpdateRolledBack })
	require.Eventually(t, func() bool { return a.tag(a.alice, "torn") == "v1" }, harness.Patience, harness.Tick, "whoever is there goes back")
	require.Equal(t, "bad", a.tag(a.bob, "torn"))
	a.work(a.bob)
	kd = a.WaitServing("torn", "both back", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable
	})
	require.Equal(t, []string{"v1", "v1"}, []string{a.tag(a.alice, "torn"), a.tag(a.bob, "torn")})
	a.Record(kd.Status.Operation.WorkflowID, "serving-absent-in-mid-update")
	require.Contains(t, kd.Status.Message, a.bob)
}
