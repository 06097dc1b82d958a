package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
)

// threeClusters is an engine over three control planes: the home cluster, alice's and bob's. Each party's worker has
// credentials only for its own cluster, with the permissions of deploy/rbac in its own namespace; the centre has
// credentials only for the home cluster.
type threeClusters struct {
	*twoParties
	// alices and bobs are the same engine and parties, with the clients of the party's cluster.
	alices, bobs *twoParties
	// work starts a party's worker; bobsWorker is bob's latest one.
	work       map[string]func() *harness.Process
	bobsWorker *harness.Process
}

func newThreeClusters(t *testing.T) *threeClusters {
	t.Helper()
	clusters := map[string]harness.Stack{}
	names := []string{harness.RandomName("alice"), harness.RandomName("bob")}
	for _, name := range names {
		clusters[name] = harness.NewPrivateStack(t).Stack
	}
	e := harness.Start(t, harness.Options{Kubeconfig: func(e *harness.Engine) string {
		return e.EngineAccount(t, e.Home).Kubeconfig
	}})
	p := &threeClusters{twoParties: &twoParties{Engine: e, t: t, alice: names[0], bob: names[1]},
		work: map[string]func() *harness.Process{}}
	p.good, p.better = p.image("v1"), p.image("v2")
	for _, name := range names {
		clusters[name].NamedNamespace(t, name)
		account := clusters[name].Account(t, "party.yaml", name)
		clusters[name].Grant(t, "party-servings.yaml", name)
		answer := e.Call(http.MethodPut, "/api/v1/parties/"+name, "namespace: "+name+"\n")
		require.Equal(t, http.StatusCreated, answer.Status, "%s", answer.Body)
		p.work[name] = func() *harness.Process { return e.PartyWorkerIn(name, name, account.Kubeconfig) }
	}
	inCluster := func(name string) *twoParties {
		other, engine := *p.twoParties, *e
		engine.Stack = clusters[name]
		other.Engine = &engine
		return &other
	}
	p.alices, p.bobs = inCluster(p.alice), inCluster(p.bob)
	p.work[p.alice]()
	p.bobsWorker = p.work[p.bob]()
	return p
}

// bobsVersion returns the version in the annotation of bob's Deployment; "" if there is no Deployment.
func (p *threeClusters) bobsVersion(id string) string {
	p.t.Helper()
	if d := p.bobs.deployment(p.bob, id); d != nil {
		return d.Annotations[serving.AnnotationVersion]
	}
	return ""
}

// killBobDuring sends the request, kills bob's worker once it has begun to execute it, and waits until the status names
// bob as unreachable.
func (p *threeClusters) killBobDuring(id string, request func()) *kuscia.KusciaDeployment {
	p.t.Helper()
	before := p.bobsVersion(id)
	request()
	require.Eventually(p.t, func() bool {
		return p.bobsVersion(id) != before
	}, harness.Patience, harness.Tick, "bob begins")
	p.bobsWorker.Kill()
	kd := p.waitSilent(id, p.bob, time.Now())
	require.False(p.t, kd.Status.Operation.Done, "the operation waits for bob")
	return kd
}

// requireServed requires both parties to run the serving version without a claim.
func (p *threeClusters) requireServed(kd *kuscia.KusciaDeployment, generation int64) {
	p.t.Helper()
	require.Equal(p.t, generation, kd.Status.Served.Generation)
	for _, d := range []*appsv1.Deployment{p.alices.deployment(p.alice, kd.Name), p.bobs.deployment(p.bob, kd.Name)} {
		require.Equal(p.t, kd.Status.Served.Digest, d.Annotations[serving.AnnotationVersion])
		require.NotContains(p.t, d.Annotations, workload.AnnotationClaimedBy)
	}
}

// With three control planes, bob's worker is killed in the middle of a creation and of two updates. The status names
// bob, and alice keeps her version. When bob's worker returns, bob continues; after the deadline both parties roll
// back.
func TestLongServing_SurvivesPartyWorkerKill_OverThreeClusters(t *testing.T) {
	t.Parallel()
	harness.Long(t)
	p := newThreeClusters(t)
	// bob's worker is killed before the slow pods are ready
	slow, slower := p.imageOfShape("slow", "HTTP", "internal"), p.imageOfShape("slow", "GRPC", "metrics")
	p.killBobDuring("far", func() { p.createOf("far", p.good, slow, serving.Policy{}) })
	require.Eventually(t, func() bool {
		d := p.alices.deployment(p.alice, "far")
		return d != nil && d.Status.AvailableReplicas == 2
	}, harness.Patience, harness.Tick, "alice does not wait for bob")
	p.bobsWorker = p.work[p.bob]()
	p.requireServed(p.WaitServing("far", "Available", harness.ServingAvailable), 1)
	require.Zero(t, remainingObjects(t, p.Engine, p.alice, "far"), "no object is created in the home cluster")

	kd := p.killBobDuring("far", func() { p.update("far", p.better, slower) })
	require.Equal(t, "v2", p.alices.tag(p.alice, "far"), "alice stays on the new version")
	require.Equal(t, int64(1), kd.Status.Served.Generation, "the new version does not serve before bob has it")
	p.bobsWorker = p.work[p.bob]()
	p.requireServed(p.WaitServing("far", "the new version in both", harness.ServingAvailable), 2)

	p.policy("far", serving.Policy{PartyDeadlineSeconds: 25})
	p.killBobDuring("far", func() { p.update("far", p.good, slow) })
	p.WaitServing("far", "the rollback", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.Reason == serving.ReasonUpdateRolledBack
	})
	require.Eventually(t, func() bool {
		return p.alices.tag(p.alice, "far") == "v2"
	}, harness.Patience, harness.Tick, "alice rolls back without bob")
	p.work[p.bob]()
	p.requireServed(p.WaitServing("far", "both rolled back", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable
	}), 2)

	p.remove("far")
	require.Eventually(t, func() bool {
		return p.Serving(p.Home, "far") == nil && remainingObjects(t, p.alices.Engine, p.alice, "far") == 0 &&
			remainingObjects(t, p.bobs.Engine, p.bob, "far") == 0
	}, harness.Patience, harness.Tick)
}

// maxReportDelay is the time within which the status must name a party whose worker was killed: party.SilenceLimit,
// plus 3 s for a busy machine.
const maxReportDelay = party.SilenceLimit + 3*time.Second

// waitSilent waits until the status names the party, whose worker was killed at that time, as unreachable, and requires
// that within maxReportDelay.
func (u *twoParties) waitSilent(id, domain string, killed time.Time) *kuscia.KusciaDeployment {
	u.t.Helper()
	kd := u.WaitServing(id, "unreachable "+domain, func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.PartyDeploymentStatuses[domain][id].Phase == kuscia.PhaseUnknown
	})
	silence := time.Since(killed)
	u.t.Logf("named after %s", silence.Round(time.Millisecond))
	require.LessOrEqual(u.t, silence, maxReportDelay, "the status names a silent party in time")
	require.Contains(u.t, kd.Status.Message, "party "+domain)
	require.Contains(u.t, kd.Status.Message, "has been silent for more than", "the message names the cause: %+v",
		kd.Status)
	return kd
}
