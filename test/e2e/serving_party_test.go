package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// partiesWithWorkers is an engine with two parties that have their own workers. Each worker has the permissions of
// deploy/rbac in its own namespace only; the centre has the permissions of the centre.
type partiesWithWorkers struct {
	*twoParties
	accounts map[string]harness.Account
	workers  map[string]*harness.Process
}

func newPartiesWithWorkers(t *testing.T) *partiesWithWorkers {
	t.Helper()
	e := harness.Start(t, harness.Options{Kubeconfig: func(e *harness.Engine) string {
		return e.EngineAccount(t, e.Home).Kubeconfig
	}})
	a := &partiesWithWorkers{twoParties: newTwoParties(t, e), accounts: map[string]harness.Account{},
		workers: map[string]*harness.Process{}}
	for _, domain := range []string{a.alice, a.bob} {
		a.accounts[domain] = a.Account(t, "party.yaml", domain)
		a.Grant(t, "party-servings.yaml", domain)
		answer := a.Call(http.MethodPut, "/api/v1/parties/"+domain, "namespace: "+domain+"\n")
		require.Equal(t, http.StatusCreated, answer.Status, "%s", answer.Body)
	}
	return a
}

// startWorkers starts the workers of the parties.
func (a *partiesWithWorkers) startWorkers(domains ...string) {
	a.t.Helper()
	for _, domain := range domains {
		a.workers[domain] = a.PartyWorkerIn(domain, domain, a.accounts[domain].Kubeconfig)
	}
}

// waitUnreachable waits until the status names an unreachable party and what is missing.
func (a *partiesWithWorkers) waitUnreachable(id, domain string) {
	a.t.Helper()
	kd := a.WaitServing(id, "unreachable "+domain, func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.PartyDeploymentStatuses[domain][id].Phase == kuscia.PhaseUnknown
	})
	require.Contains(a.t, kd.Status.Message+kd.Status.PartyDeploymentStatuses[domain][id].Message, "worker of queue",
		"the message names what is missing: %+v", kd.Status)
}

// The status names a party that is unreachable during a creation. The other party starts meanwhile, and the unreachable
// one follows when its worker starts.
func TestLongServing_WaitsForUnreachableParty(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	a := newPartiesWithWorkers(t)
	a.startWorkers(a.alice)
	a.create("late", serving.Policy{})
	a.waitUnreachable("late", a.bob)
	require.Eventually(t, func() bool {
		d := a.deployment(a.alice, "late")
		return d != nil && d.Status.AvailableReplicas == 2
	}, harness.Patience, harness.Tick, "alice does not wait for bob")
	require.Equal(t, "Unknown", a.query("late").Status.Parties[1].State)
	a.startWorkers(a.bob)
	a.WaitServing("late", "Available", harness.ServingAvailable)

	// a stopped worker signs off and is unreachable at once; TestLongServingUpdate_IsRolledBack_WhenPartyIsUnreachable
	// kills it
	require.NoError(t, a.workers[a.bob].Stop())
	a.waitUnreachable("late", a.bob)
	require.Equal(t, kuscia.PhaseUnknown, a.Serving(a.Home, "late").Status.Phase,
		"a serving without an operation shows it too")
	a.remove("late")
	require.Eventually(t, func() bool {
		return a.Serving(a.Home, "late") == nil
	}, harness.Patience, harness.Tick, "a deletion does not wait for an unreachable party")
	require.Zero(t, remainingObjects(t, a.Engine, a.alice, "late"))
	require.NotZero(t, remainingObjects(t, a.Engine, a.bob, "late"))

	// The name can be used again at once. The deletion of the former serving is still open, with the workflow ID of the
	// second generation of the new serving.
	a.create("late", serving.Policy{})
	a.update("late", a.better, a.better)
	a.WaitServing("late", "the start of the update", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.Operation != nil && kd.Status.Operation.Generation == 2
	})
	a.startWorkers(a.bob)
	a.WaitServing("late", "Available", harness.ServingAvailable)
	require.Equal(t, []string{"v2", "v2"}, []string{a.tag(a.alice, "late"), a.tag(a.bob, "late")},
		"the objects of the former serving are replaced")
	a.remove("late")
	require.Eventually(t, func() bool { return a.Serving(a.Home, "late") == nil }, harness.Patience, harness.Tick)
	require.Zero(t, remainingObjects(t, a.Engine, a.alice, "late")+remainingObjects(t, a.Engine, a.bob, "late"))
}

// An update waits for a killed worker as long as the policy allows; then every reachable party rolls back, and the
// unreachable one as soon as its worker returns.
func TestLongServingUpdate_IsRolledBack_WhenPartyIsUnreachable(t *testing.T) {
	t.Parallel()
	harness.Long(t)
	a := newPartiesWithWorkers(t)
	a.startWorkers(a.alice, a.bob)
	a.create("torn", serving.Policy{PartyDeadlineSeconds: 30})
	a.WaitServing("torn", "Available", harness.ServingAvailable)

	// An update does not change any party if one is unreachable at its start.
	a.workers[a.bob].Kill()
	a.waitUnreachable("torn", a.bob)
	a.update("torn", a.better, a.better)
	kd := a.WaitServing("torn", "the end of the wait", harness.ServingDone)
	require.Equal(t, serving.ReasonUpdateRolledBack, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "nothing was changed in any party")
	require.Equal(t, []string{"v1", "v1"}, []string{a.tag(a.alice, "torn"), a.tag(a.bob, "torn")})

	// In mid-update: bob's pods do not become ready, and its worker is killed meanwhile.
	a.startWorkers(a.bob)
	a.WaitServing("torn", "bob reachable", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.Phase == kuscia.PhaseAvailable
	})
	a.update("torn", a.better, a.bad)
	require.Eventually(t, func() bool { return a.tag(a.bob, "torn") == "bad" }, harness.Patience, harness.Tick)
	a.workers[a.bob].Kill()
	a.waitUnreachable("torn", a.bob)
	a.WaitServing("torn", "the rollback", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.Reason == serving.ReasonUpdateRolledBack
	})
	require.Eventually(t, func() bool {
		return a.tag(a.alice, "torn") == "v1"
	}, harness.Patience, harness.Tick, "the reachable party rolls back")
	require.Equal(t, "bad", a.tag(a.bob, "torn"))
	a.startWorkers(a.bob)
	kd = a.WaitServing("torn", "both rolled back", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable
	})
	require.Equal(t, []string{"v1", "v1"}, []string{a.tag(a.alice, "torn"), a.tag(a.bob, "torn")})
	require.Contains(t, kd.Status.Message, a.bob)
}
