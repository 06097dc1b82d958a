package traffic_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// mailbox takes the detector's signals, or says that there is no such workflow.
type mailbox struct {
	mu      sync.Mutex
	arrived []rollout.Observed
	nobody  bool
	// refused is how many signals found no workflow.
	refused int
}

func (m *mailbox) SignalWorkflow(_ context.Context, _, _, _ string, arg any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nobody {
		m.refused++
		return serviceerror.NewNotFound("no such workflow")
	}
	m.arrived = append(m.arrived, arg.(rollout.Observed))
	return nil
}

func (m *mailbox) refusals() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused
}

func (m *mailbox) empty() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arrived = nil
}

// told says whether a rollout was told of such a change of an object.
func (m *mailbox) told(what, object string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.arrived, func(o rollout.Observed) bool { return o.What == what && o.Object == object })
}

// held is what one rollout holds.
type held struct {
	mu      sync.Mutex
	holding drift.Holding
	heard   func(drift.Holding)
}

func (h *held) Held(claim string) (drift.Holding, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holding, claim == h.holding.Claim
}

func (h *held) OnHolding(f func(drift.Holding)) { h.heard = f }

// loosen has somebody else let the workload's own controller go.
func (h *held) loosen() {
	h.mu.Lock()
	h.holding.Loose = true
	now := h.holding
	h.mu.Unlock()
	h.heard(now)
}

// watched is a bench with a detector, and a rollout that is pinned and routes a share.
type watched struct {
	*bench
	mail *mailbox
	held *held
	req  rollout.RouteRequest
	// stop ends the watch.
	stop func()
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	b := newBench(t)
	b.use(b.config, traffic.Options{Namespaces: []string{b.namespace}})
	b.shop()
	b.apply(ingressYAML)
	routing := strategy.Routing{Service: "order", Ingress: &strategy.IngressRef{Class: "nginx", Name: "order"}}
	w := &watched{bench: b, mail: &mailbox{}, req: b.request(rollout.RoutePin, routing)}
	w.req.Claim = "rollout/default/" + b.namespace + "/order@run-1"
	w.held = &held{holding: drift.Holding{Workload: w.req.Workload, Claim: w.req.Claim, Routings: w.req.Routings, Services: true}}
	w.watch()
	w.must(w.req)
	w.req.Action, w.req.Traffic = rollout.RouteEnsure, weight(20)
	w.must(w.req)
	w.mail.empty() // of the canary Service that was watched for before it was made
	return w
}

// watch begins to watch.
func (w *watched) watch() {
	w.t.Helper()
	d := traffic.NewDriftDetector(w.acts, w.held, w.mail)
	require.NoError(w.t, d.Start(w.t.Context()))
	w.stop = sync.OnceFunc(func() { require.NoError(w.t, d.Stop(context.Background())) })
	w.t.Cleanup(w.stop)
}

func (w *watched) pinned() bool {
	selector, _ := w.object("Service", "order").Object["spec"].(map[string]any)["selector"].(map[string]any)
	return selector["pod-template-hash"] == stable
}

// takePods deletes the pods of a version at once, and says when.
func (w *watched) takePods(names ...string) time.Time {
	w.t.Helper()
	for _, name := range names {
		err := w.kube.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{})
		require.NoError(w.t, err)
	}
	return time.Now()
}

// No Service that is pinned selects nobody while other pods are ready.
func TestAServiceIsUnpinnedWhenItsPodsAreGone(t *testing.T) {
	w := newWatched(t)
	gone := w.takePods("stable-1", "stable-2")
	require.Eventually(t, func() bool { return !w.pinned() }, patience, tick/10)
	t.Logf("unpinned within %s", time.Since(gone))
	require.Less(t, time.Since(gone), 3*time.Second, "a second, and more on a busy machine")
	require.Eventually(t, func() bool { return w.mail.told(rollout.ObservedUnpinned, "Service "+w.namespace+"/order") }, patience, tick)
	require.Equal(t, map[string]string{"team": "shop"}, w.object("Service", "order").GetLabels(), "it is what it was")
}

// A workload's own controller that somebody has let go is not waited for.
func TestAServiceIsUnpinnedBeforeItsPodsGo(t *testing.T) {
	w := newWatched(t)
	w.held.loosen()
	require.Eventually(t, func() bool { return !w.pinned() }, patience, tick)
}

// What another engine holds is its own to look after.
func TestAServiceOfAnotherEngineIsLeftAlone(t *testing.T) {
	w := newWatched(t)
	w.mail.mu.Lock()
	w.mail.nobody = true
	w.mail.mu.Unlock()
	before := w.wire.count()
	w.takePods("stable-1", "stable-2")
	require.Eventually(t, func() bool { return w.mail.refusals() > 0 }, patience, tick)
	first := w.mail.refusals()
	w.held.loosen()
	require.Eventually(t, func() bool { return w.mail.refusals() > first }, patience, tick, "it is asked again by the next change")
	require.True(t, w.pinned())
	require.Equal(t, before, w.wire.count())
}

// A split that was stopped to frozen is nobody's release, and pinned all the same.
func TestAServiceOfAFrozenSplitIsUnpinned(t *testing.T) {
	w := newWatched(t)
	w.mail.mu.Lock()
	w.mail.nobody = true
	w.mail.mu.Unlock()
	w.held.mu.Lock()
	w.held.holding = drift.Holding{}
	w.held.mu.Unlock()
	w.takePods("stable-1", "stable-2")
	require.Eventually(t, func() bool { return !w.pinned() }, patience, tick)
}

// Routes to a version without pods are given back.
func TestRoutesAreGivenBackWhenTheNewPodsAreGone(t *testing.T) {
	w := newWatched(t)
	require.NotNil(t, w.object("Ingress", "order-canary"))
	w.takePods("canary-1")
	require.Eventually(t, func() bool { return w.object("Ingress", "order-canary") == nil }, patience, tick)
	require.Eventually(t, func() bool { return w.mail.told(rollout.ObservedUnrouted, "Service "+w.namespace+"/order-canary") }, patience, tick)
	require.True(t, w.pinned(), "the stable side has its pods")
	require.False(t, w.mail.told(rollout.ObservedRoutes, "Ingress "+w.namespace+"/order-canary"), "it was no deed of somebody else")
}

// What somebody else changes or deletes is told, with their name; what a rollout gives back is not.
func TestWhatOthersDoToBorrowedObjectsIsTold(t *testing.T) {
	w := newWatched(t)
	told := func(object string) {
		t.Helper()
		require.Eventually(t, func() bool { return w.mail.told(rollout.ObservedRoutes, object) }, patience, tick, object)
	}
	w.merge("Service", "order", `{spec: {selector: {pod-template-hash: null}}}`)
	told("Service " + w.namespace + "/order")
	w.merge("Ingress", "order-canary", `{metadata: {annotations: {nginx.ingress.kubernetes.io/canary-weight: "77"}}}`)
	told("Ingress " + w.namespace + "/order-canary")
	w.delete("Service", "order-canary")
	require.Eventually(t, func() bool {
		w.mail.mu.Lock()
		defer w.mail.mu.Unlock()
		return slices.ContainsFunc(w.mail.arrived, func(o rollout.Observed) bool { return strings.Contains(o.Message, "has deleted Service") })
	}, patience, tick)
	w.mail.mu.Lock()
	w.mail.arrived = nil
	w.mail.mu.Unlock()
	w.req.Overwrite = true
	for _, action := range []rollout.RouteAction{rollout.RouteToStable, rollout.RouteUnpin, rollout.RouteRemoveCanary} {
		w.req.Action, w.req.Traffic = action, strategy.Traffic{}
		w.must(w.req)
	}
	require.Never(t, func() bool {
		w.mail.mu.Lock()
		defer w.mail.mu.Unlock()
		return slices.ContainsFunc(w.mail.arrived, func(o rollout.Observed) bool {
			return !strings.Contains(o.Message, "has deleted Service") // which may be told twice: several hints are one look
		})
	}, 2*time.Second, tick)
}

// Where several workers serve a party, one deletes what the others watch: while pods move, who doesn't move them leaves that to who does.
func TestWhatAnotherWorkerDeletesIsNotTold(t *testing.T) {
	w := newWatched(t)
	w.held.mu.Lock()
	w.held.holding.Moves = true
	w.held.mu.Unlock()
	w.delete("Ingress", "order-canary")
	w.merge("Service", "order", `{spec: {selector: {pod-template-hash: null}}}`)
	require.Eventually(t, func() bool { return w.mail.told(rollout.ObservedRoutes, "Service "+w.namespace+"/order") }, patience, tick, "an edit tells who made it")
	require.False(t, w.mail.told(rollout.ObservedRoutes, "Ingress "+w.namespace+"/order-canary"))

	w.held.mu.Lock()
	w.held.holding.Moves = false
	w.held.mu.Unlock()
	require.Eventually(t, func() bool { return w.mail.told(rollout.ObservedRoutes, "Ingress "+w.namespace+"/order-canary") }, patience, tick,
		"a rollout that rests has deleted nothing")
}

// A canary Service that is deleted while no worker watches leaves no event. The next worker tells of it.
func TestACanaryServiceThatWentUnseenIsMissed(t *testing.T) {
	w := newWatched(t)
	w.stop()
	require.NoError(t, w.kube.CoreV1().Services(w.namespace).Delete(t.Context(), "order-canary", metav1.DeleteOptions{}))
	canary := "Service " + w.namespace + "/order-canary"
	require.False(t, w.mail.told(rollout.ObservedRoutes, canary), "nobody watched")
	w.watch()
	require.Eventually(t, func() bool { return w.mail.told(rollout.ObservedRoutes, canary) }, patience, tick)
}
