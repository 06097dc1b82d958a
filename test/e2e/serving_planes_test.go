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
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/harness"
)

// planes are three control planes: the home cluster, alice's and bob's. Each party's worker has the permissions of deploy/rbac in its own namespace of its own
// cluster and knows no other, and the centre has credentials for the home cluster alone.
type planes struct {
	*union
	// alices and bobs are the same union, seen from the cluster of the party.
	alices, bobs *union
	// work starts a party's worker; bobsWorker is the last of bob's.
	work       map[string]func() *harness.Process
	bobsWorker *harness.Process
}

func threePlanes(t *testing.T) *planes {
	t.Helper()
	clusters := map[string]harness.Stack{}
	names := []string{harness.RandomName("alice"), harness.RandomName("bob")}
	for _, name := range names {
		clusters[name] = harness.NewPrivateStack(t).Stack
	}
	e := harness.Start(t, harness.Options{Kubeconfig: func(e *harness.Engine) string { return e.Account(t, "centre.yaml", e.Home).Kubeconfig }})
	p := &planes{union: &union{Engine: e, t: t, alice: names[0], bob: names[1]}, work: map[string]func() *harness.Process{}}
	p.good, p.better = p.image("v1"), p.image("v2")
	for _, name := range names {
		clusters[name].NamedNamespace(t, name)
		account := clusters[name].Account(t, "party.yaml", name)
		clusters[name].Grant(t, "party-servings.yaml", name)
		answer := e.Call(http.MethodPut, "/api/v1/parties/"+name, "namespace: "+name+"\n")
		require.Equal(t, http.StatusCreated, answer.Status, "%s", answer.Body)
		p.work[name] = func() *harness.Process { return e.PartyWorkerIn(name, name, account.Kubeconfig) }
	}
	there := func(name string) *union {
		other, engine := *p.union, *e
		engine.Stack = clusters[name]
		other.Engine = &engine
		return &other
	}
	p.alices, p.bobs = there(p.alice), there(p.bob)
	p.work[p.alice]()
	p.bobsWorker = p.work[p.bob]()
	return p
}

// bobsVersion is the version that bob's Deployment was told last; "" when there is none.
func (p *planes) bobsVersion(id string) string {
	p.t.Helper()
	if d := p.bobs.deployment(p.bob, id); d != nil {
		return d.Annotations[serving.AnnotationVersion]
	}
	return ""
}

// dieInMid kills bob's worker when it has begun with what is asked, and waits until the status names it.
func (p *planes) dieInMid(id string, ask func()) *kuscia.KusciaDeployment {
	p.t.Helper()
	before := p.bobsVersion(id)
	ask()
	require.Eventually(p.t, func() bool { return p.bobsVersion(id) != before }, harness.Patience, harness.Tick, "bob begins")
	p.bobsWorker.Kill()
	kd := p.waitSilent(id, p.bob, time.Now())
	require.False(p.t, kd.Status.Operation.Done, "the operation waits for bob")
	return kd
}

// requireServed wants both parties to run the version that serves, claimed by nobody.
func (p *planes) requireServed(kd *kuscia.KusciaDeployment, generation int64) {
	p.t.Helper()
	require.Equal(p.t, generation, kd.Status.Served.Generation)
	for _, d := range []*appsv1.Deployment{p.alices.deployment(p.alice, kd.Name), p.bobs.deployment(p.bob, kd.Name)} {
		require.Equal(p.t, kd.Status.Served.Digest, d.Annotations[serving.AnnotationVersion])
		require.NotContains(p.t, d.Annotations, workloadops.AnnotationClaimedBy)
	}
}

// Over three control planes bob's worker dies in the middle of a creation and of two updates: it is named, alice stays where she is, and bob catches up, or
// everybody goes back.
func TestLongServingsOverThreeControlPlanes(t *testing.T) {
	t.Parallel()
	harness.Long(t)
	p := threePlanes(t)
	slow, slower := p.shaped("slow", "HTTP", "internal"), p.shaped("slow", "GRPC", "metrics") // so that bob's worker dies before its pods are ready
	p.dieInMid("far", func() { p.createOf("far", p.good, slow, serving.Policy{}) })
	require.Eventually(t, func() bool {
		d := p.alices.deployment(p.alice, "far")
		return d != nil && d.Status.AvailableReplicas == 2
	}, harness.Patience, harness.Tick, "alice does not wait for bob")
	p.bobsWorker = p.work[p.bob]()
	p.requireServed(p.WaitServing("far", "Available", harness.ServingAvailable), 1)
	require.Zero(t, leftOf(t, p.Engine, p.alice, "far"), "nothing is made in the home cluster")

	kd := p.dieInMid("far", func() { p.update("far", p.better, slower) })
	require.Equal(t, "v2", p.alices.tag(p.alice, "far"), "alice stays on the new version")
	require.Equal(t, int64(1), kd.Status.Served.Generation, "which does not serve before bob has it")
	p.bobsWorker = p.work[p.bob]()
	p.requireServed(p.WaitServing("far", "the new version in both", harness.ServingAvailable), 2)

	p.policy("far", serving.Policy{PartyDeadlineSeconds: 25})
	p.dieInMid("far", func() { p.update("far", p.good, slow) })
	p.WaitServing("far", "the way back", func(kd *kuscia.KusciaDeployment) bool { return kd.Status.Reason == serving.ReasonUpdateRolledBack })
	require.Eventually(t, func() bool { return p.alices.tag(p.alice, "far") == "v2" }, harness.Patience, harness.Tick, "alice goes back without bob")
	p.work[p.bob]()
	p.requireServed(p.WaitServing("far", "both back", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable
	}), 2)

	p.remove("far")
	require.Eventually(t, func() bool {
		return p.Serving(p.Home, "far") == nil && leftOf(t, p.alices.Engine, p.alice, "far") == 0 && leftOf(t, p.bobs.Engine, p.bob, "far") == 0
	}, harness.Patience, harness.Tick)
}

// namedWithin is how soon the status must name a party whose worker was killed: the silence that counts (party.Silence), and a little for a busy machine.
const namedWithin = party.Silence + 3*time.Second

// waitSilent waits until the status names a party as absent whose worker was killed at that time, and wants that soon enough.
func (u *union) waitSilent(id, domain string, killed time.Time) *kuscia.KusciaDeployment {
	u.t.Helper()
	kd := u.WaitServing(id, "an absent "+domain, func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.PartyDeploymentStatuses[domain][id].Phase == kuscia.PhaseUnknown
	})
	silence := time.Since(killed)
	u.t.Logf("named after %s", silence.Round(time.Millisecond))
	require.LessOrEqual(u.t, silence, namedWithin, "the status names a silent party in time")
	require.Contains(u.t, kd.Status.Message, "party "+domain)
	require.Contains(u.t, kd.Status.Message, "is silent for more than", "it says what is the matter: %+v", kd.Status)
	return kd
}
