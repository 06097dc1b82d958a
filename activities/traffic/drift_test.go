package traffic_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// mailbox receives the detector's signals, or answers that the workflow does not exist.
type mailbox struct {
	mu         sync.Mutex
	arrived    []rollout.Observed
	noWorkflow bool
	// refused are the signals that found no workflow.
	refused []rollout.Observed
}

func (m *mailbox) SignalWorkflow(_ context.Context, _, _, _ string, arg any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noWorkflow {
		m.refused = append(m.refused, arg.(rollout.Observed))
		return serviceerror.NewNotFound("no such workflow")
	}
	m.arrived = append(m.arrived, arg.(rollout.Observed))
	return nil
}

// DescribeWorkflowExecution knows no workflow.
func (m *mailbox) DescribeWorkflowExecution(context.Context, string,
	string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, serviceerror.NewNotFound("no such workflow")
}

func (m *mailbox) refusals() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.refused)
}

func (m *mailbox) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arrived = nil
}

// reported reports whether a rollout got a signal about such a change of an object.
func (m *mailbox) reported(what, object string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.arrived, func(o rollout.Observed) bool { return o.What == what && o.Object == object })
}

// fakeHoldings is what one rollout holds.
type fakeHoldings struct {
	mu      sync.Mutex
	holding drift.Holding
	heard   func(drift.Holding)
}

func (h *fakeHoldings) Held(claim string) (drift.Holding, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holding, claim == h.holding.Claim
}

func (h *fakeHoldings) OnHolding(f func(drift.Holding)) { h.heard = f }

// setLoose simulates another client that lets the workload's own controller move pods.
func (h *fakeHoldings) setLoose() {
	h.mu.Lock()
	h.holding.Unsettled = true
	now := h.holding
	h.mu.Unlock()
	h.heard(now)
}

// watched is a bench with a detector, and a rollout that has pinned its Service and routes a share of the requests.
type watched struct {
	*bench
	mail *mailbox
	held *fakeHoldings
	req  rollout.RouteRequest
	// stop stops the detector.
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
	w.held = &fakeHoldings{holding: drift.Holding{Workload: w.req.Workload, Claim: w.req.Claim,
		Routings: w.req.Routings, Services: true}}
	w.watch()
	w.must(w.req)
	w.req.Action, w.req.Traffic = rollout.RouteEnsure, weight(20)
	w.must(w.req)
	w.mail.clear() // drops reports about the canary Service from before it was created
	return w
}

// watch starts a detector.
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

// state is formatted as what the rollout's workflow did not take, and the rollout's Services.
type state struct{ *watched }

func (s state) String() string {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	return fmt.Sprintf("refused %+v\n%v\n%v", s.mail.refused, s.object("Service", "order"),
		s.object("Service", "order-canary"))
}

// takePods deletes pods and returns when.
func (w *watched) takePods(names ...string) time.Time {
	w.t.Helper()
	for _, name := range names {
		err := w.kube.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{})
		require.NoError(w.t, err)
	}
	return time.Now()
}

// A pinned Service never selects zero ready pods while other pods are ready.
func TestService_IsUnpinned_WhenItsPodsAreDeleted(t *testing.T) {
	w := newWatched(t)
	deleted := w.takePods("stable-1", "stable-2")
	require.Eventually(t, func() bool { return !w.pinned() }, patience, tick/10)
	t.Logf("unpinned within %s", time.Since(deleted))
	require.Less(t, time.Since(deleted), 3*time.Second, "one second, more on a busy machine")
	require.Eventually(t, func() bool {
		return w.mail.reported(rollout.ObservedUnpinned, "Service "+w.namespace+"/order")
	}, patience, tick)
	require.Equal(t, map[string]string{"team": "shop"}, w.object("Service", "order").GetLabels(),
		"the Service is restored")
}

// The Service is unpinned at once when another client lets the workload's own controller move pods.
func TestService_IsUnpinned_WhenControllerIsLoose(t *testing.T) {
	w := newWatched(t)
	w.held.setLoose()
	require.Eventually(t, func() bool { return !w.pinned() }, patience, tick)
}

// What another engine holds is left to that engine.
func TestService_StaysPinned_WhenHeldByOtherEngine(t *testing.T) {
	w := newWatched(t)
	w.mail.mu.Lock()
	w.mail.noWorkflow = true
	w.mail.mu.Unlock()
	before := w.wire.count()
	w.takePods("stable-1", "stable-2")
	require.Eventually(t, func() bool { return w.mail.refusals() > 0 }, patience, tick)
	first := w.mail.refusals()
	w.held.setLoose()
	require.Eventually(t, func() bool {
		return w.mail.refusals() > first
	}, patience, tick, "the next change is checked again: %v", state{w})
	require.True(t, w.pinned())
	require.Equal(t, before, w.wire.count())
}

// A frozen split has no running release, but its Service is still pinned.
func TestServiceOfFrozenSplit_IsUnpinned_WhenItsPodsAreDeleted(t *testing.T) {
	w := newWatched(t)
	w.mail.mu.Lock()
	w.mail.noWorkflow = true
	w.mail.mu.Unlock()
	w.held.mu.Lock()
	w.held.holding = drift.Holding{}
	w.held.mu.Unlock()
	w.takePods("stable-1", "stable-2")
	require.Eventually(t, func() bool { return !w.pinned() }, patience, tick)
}

// Routes to a version without pods are removed.
func TestRoutes_AreRestored_WhenNewPodsAreDeleted(t *testing.T) {
	w := newWatched(t)
	require.NotNil(t, w.object("Ingress", "order-canary"))
	w.takePods("canary-1")
	require.Eventually(t, func() bool { return w.object("Ingress", "order-canary") == nil }, patience, tick)
	require.Eventually(t, func() bool {
		return w.mail.reported(rollout.ObservedUnrouted, "Service "+w.namespace+"/order-canary")
	}, patience, tick)
	require.True(t, w.pinned(), "the stable side has its pods")
	require.False(t, w.mail.reported(rollout.ObservedRoutes, "Ingress "+w.namespace+"/order-canary"),
		"another client did not cause it")
}

// A canary Service that its rollout does not create again, because it waits for a person or finishes its pods, gets no
// more requests. Nothing is done for one that is created again in time.
func TestRoutes_AreRestored_WhenCanaryServiceStaysDeleted(t *testing.T) {
	w := newWatched(t)
	w.delete("Service", "order-canary")
	w.req.Overwrite = true
	w.must(w.req)
	require.NotNil(t, w.object("Service", "order-canary"))
	require.Never(t, func() bool { return w.object("Ingress", "order-canary") == nil }, 6*time.Second, tick)

	w.delete("Service", "order-canary")
	deleted := time.Now()
	require.Eventually(t, func() bool { return w.object("Ingress", "order-canary") == nil }, patience, tick)
	require.Greater(t, time.Since(deleted), 4*time.Second, "its rollout creates it again first, if it can")
	require.Eventually(t, func() bool {
		return w.mail.reported(rollout.ObservedUnrouted, "Service "+w.namespace+"/order-canary")
	}, patience, tick)
	require.True(t, w.pinned(), "the stable side has its pods")
}

// While the stable Service has no ready pod either, the routes stay: they go back as soon as it has one.
func TestRoutes_AreRestoredLater_WhenStablePodsAreUnreadyToo(t *testing.T) {
	w := newWatched(t)
	w.takePods("stable-1", "stable-2", "canary-1")
	w.delete("Service", "order-canary")
	require.Never(t, func() bool { return w.object("Ingress", "order-canary") == nil }, 7*time.Second, tick)
	w.pod("stable-3", stable, nil)
	require.Eventually(t, func() bool { return w.object("Ingress", "order-canary") == nil }, patience, tick)
}

// Changes and deletions by other clients are reported, with the client's name; what a rollout restores is not reported.
func TestDriftDetector_ReportsChangesByOthersOnly(t *testing.T) {
	w := newWatched(t)
	requireReported := func(object string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return w.mail.reported(rollout.ObservedRoutes, object)
		}, patience, tick, object)
	}
	w.merge("Service", "order", `{spec: {selector: {pod-template-hash: null}}}`)
	requireReported("Service " + w.namespace + "/order")
	w.merge("Ingress", "order-canary", `{metadata: {annotations: {nginx.ingress.kubernetes.io/canary-weight: "77"}}}`)
	requireReported("Ingress " + w.namespace + "/order-canary")
	w.delete("Service", "order-canary")
	deleted := time.Now()
	require.Eventually(t, func() bool {
		w.mail.mu.Lock()
		defer w.mail.mu.Unlock()
		return slices.ContainsFunc(w.mail.arrived, func(o rollout.Observed) bool {
			return strings.Contains(o.Message, "has deleted Service")
		})
	}, patience, tick)
	w.mail.mu.Lock()
	w.mail.arrived = nil
	w.mail.mu.Unlock()
	w.req.Overwrite = true
	for _, action := range []rollout.RouteAction{rollout.RouteToStable, rollout.RouteUnpin, rollout.RouteRemoveCanary} {
		w.req.Action, w.req.Traffic = action, strategy.Traffic{}
		w.must(w.req)
	}
	slow := time.Since(deleted) > 4*time.Second // the worker may have restored the routes before
	require.Never(t, func() bool {
		w.mail.mu.Lock()
		defer w.mail.mu.Unlock()
		return slices.ContainsFunc(w.mail.arrived, func(o rollout.Observed) bool {
			return !strings.Contains(o.Message, "has deleted Service") && // may be reported twice
				(o.What != rollout.ObservedUnrouted || !slow)
		})
	}, 2*time.Second, tick)
}

// When several workers serve a party, one worker deletes objects that the others watch. While pods move, a worker that
// does not move them itself does not report deletions.
func TestDeletionByOtherWorker_IsNotReportedWhilePodsMove(t *testing.T) {
	w := newWatched(t)
	w.held.mu.Lock()
	w.held.holding.Moving = true
	w.held.mu.Unlock()
	w.delete("Ingress", "order-canary")
	w.merge("Service", "order", `{spec: {selector: {pod-template-hash: null}}}`)
	require.Eventually(t, func() bool {
		return w.mail.reported(rollout.ObservedRoutes, "Service "+w.namespace+"/order")
	}, patience, tick, "an edit names its client")
	require.False(t, w.mail.reported(rollout.ObservedRoutes, "Ingress "+w.namespace+"/order-canary"))

	w.held.mu.Lock()
	w.held.holding.Moving = false
	w.held.mu.Unlock()
	require.Eventually(t, func() bool {
		return w.mail.reported(rollout.ObservedRoutes, "Ingress "+w.namespace+"/order-canary")
	}, patience, tick,
		"a rollout that has settled deletes nothing")
}

// The deletion of a canary Service while no worker watches leaves no event. The next worker detects it.
func TestCanaryServiceDeletedBeforeWatch_IsReported(t *testing.T) {
	w := newWatched(t)
	w.stop()
	require.NoError(t, w.kube.CoreV1().Services(w.namespace).Delete(t.Context(), "order-canary",
		metav1.DeleteOptions{}))
	canary := "Service " + w.namespace + "/order-canary"
	require.False(t, w.mail.reported(rollout.ObservedRoutes, canary), "no worker watches")
	w.watch()
	require.Eventually(t, func() bool { return w.mail.reported(rollout.ObservedRoutes, canary) }, patience, tick)
}
