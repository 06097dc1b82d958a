package traffic_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// begun pins the Service and sends a fifth of the requests to the canary.
func (b *bench) begun(w way) {
	b.t.Helper()
	b.must(b.request(rollout.RoutePin, w.routing))
	b.must(b.twenty(w))
}

func (b *bench) twenty(w way) rollout.RouteRequest {
	req := b.request(rollout.RouteEnsure, w.routing)
	req.Traffic = weight(20)
	return req
}

// edits are what somebody else does to the part of an object that a release has borrowed, and to what it has made.
var edits = map[string]struct{ kind, name, patch string }{
	"ingress":   {"Ingress", "order-canary", `{metadata: {annotations: {nginx.ingress.kubernetes.io/canary-weight: "90"}}}`},
	"httproute": {"HTTPRoute", "order", `{spec: {rules: [{backendRefs: [{name: order, port: 80}]}]}}`},
	"custom":    {"VirtualService", "order", `{spec: {http: [{route: [{destination: {host: order}}]}]}}`},
}

// TestAnothersEdit has somebody edit a route in mid-release: it is not written over until a person says so, and then the originals are
// still known.
func TestAnothersEdit(t *testing.T) {
	t.Parallel()
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			before := own(b.set(w))
			b.begun(w)
			e := edits[name]
			b.merge(e.kind, e.name, e.patch)
			edited := own(b.object(e.kind, e.name))

			message, _ := b.fails(b.twenty(w), failure.Drift)
			require.Contains(t, message, e.kind+" "+b.namespace+"/"+e.name+" has been edited by traffic.test since", "as the API server knows this process")
			require.Equal(t, edited, own(b.object(e.kind, e.name)), "nothing is fought over")
			if name != "ingress" { // what a release has made it may delete, whatever became of it
				b.fails(b.request(rollout.RouteToStable, w.routing), failure.Drift)
			}
			put := b.twenty(w)
			put.Overwrite = true
			b.must(put)
			b.requireSplit(w, weight(20))
			b.must(b.request(rollout.RouteToStable, w.routing))
			require.Equal(t, before, own(b.object(w.kind, "order")))
		})
	}
}

// TestAForgedOriginalIsNotApplied has a tenant put a patch of their own in the place of what a release has saved on their Service or route: no change of traffic
// follows it, and what stood there is still known once it is put back.
func TestAForgedOriginalIsNotApplied(t *testing.T) {
	t.Parallel()
	forged := `[{"op":"add","path":"/metadata/finalizers","value":["theirs.example/hold"]},{"op":"remove","path":"/metadata/annotations/slipway.io~1held-by"}]`
	for name, w := range ways {
		for object, actions := range map[string][]rollout.RouteAction{
			"Service": {rollout.RoutePin, rollout.RouteUnpin}, w.kind: {rollout.RouteEnsure, rollout.RouteToStable},
		} {
			if object == "Ingress" {
				continue // it is not borrowed: a canary is made beside it
			}
			t.Run(name+" "+object, func(t *testing.T) {
				b := newBench(t)
				b.set(w)
				before := own(b.object(object, "order"))
				b.begun(w)
				saved := b.object(object, "order").GetAnnotations()[rollout.AnnotationRestore]
				b.merge(object, "order", fmt.Sprintf(`{metadata: {annotations: {%s: %q}}}`, rollout.AnnotationRestore, forged))
				for _, action := range actions {
					req := b.request(action, w.routing)
					req.Traffic, req.Overwrite = weight(50), true // nor does a person's word that edits are written over
					message, _ := b.fails(req, failure.Drift)
					require.Contains(t, message, "its annotation slipway.io/restore has been changed by traffic.test and is not followed (operation 1 changes /metadata/finalizers, "+
						"which no release borrows): put back what stood there", action)
				}
				require.Empty(t, b.object(object, "order").GetFinalizers())
				b.merge(object, "order", fmt.Sprintf(`{metadata: {annotations: {%s: %q}}}`, rollout.AnnotationRestore, saved))
				b.must(b.request(actions[1], w.routing))
				require.Equal(t, before, own(b.object(object, "order")))
			})
		}
	}
}

// TestAnothersEditOfAService has somebody change the pinned Service's selector.
func TestAnothersEditOfAService(t *testing.T) {
	b, w := newBench(t), ways["httproute"]
	b.set(w)
	service := own(b.object("Service", "order"))
	b.must(b.request(rollout.RoutePin, w.routing))
	b.merge("Service", "order", `{spec: {selector: {pod-template-hash: `+canary+`}}}`)
	b.fails(b.request(rollout.RoutePin, w.routing), failure.Drift)
	b.fails(b.request(rollout.RouteUnpin, w.routing), failure.Drift)
	again := b.request(rollout.RouteUnpin, w.routing)
	again.Overwrite = true
	b.must(again)
	require.Equal(t, service, own(b.object("Service", "order")))
}

// TestEditsThatAreNobodysBusiness leaves alone what somebody changes outside of the borrowed part, also when the release is over.
func TestEditsThatAreNobodysBusiness(t *testing.T) {
	t.Parallel()
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.set(w)
			b.begun(w)
			b.merge(w.kind, "order", `{metadata: {annotations: {hello: world}, labels: {more: "1"}}}`)
			b.must(b.twenty(w))
			b.must(b.request(rollout.RouteToStable, w.routing))
			require.Equal(t, "world", b.object(w.kind, "order").GetAnnotations()["hello"])
			require.Equal(t, "1", b.object(w.kind, "order").GetLabels()["more"])
		})
	}
}

// TestAnothersClaim refuses to touch what another release holds, and names it.
func TestAnothersClaim(t *testing.T) {
	t.Parallel()
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.set(w)
			theirs := b.twenty(w)
			theirs.Claim = "rollout/default/shop/other@run-7"
			b.must(theirs)
			before := b.wire.count()
			message, details := b.fails(b.twenty(w), failure.Claimed)
			require.Equal(t, theirs.Claim, details.Holder)
			require.Contains(t, message, "is held by another release")
			require.Equal(t, before, b.wire.count())
		})
	}
}

// TestDeletedByHand has somebody delete what a release made or borrowed: what it made it makes again; what it borrowed is a person's to
// decide, and nothing to give back.
func TestDeletedByHand(t *testing.T) {
	t.Parallel()
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.set(w)
			b.begun(w)
			b.delete("Service", "order-canary")
			if name == "ingress" {
				b.delete("Ingress", "order-canary")
			}
			require.True(t, b.must(b.twenty(w)).Modified)
			b.requireSplit(w, weight(20))
			b.delete(w.kind, "order")
			message, _ := b.fails(b.twenty(w), failure.Drift)
			require.Contains(t, message, "was deleted by somebody else")
			b.must(b.request(rollout.RouteToStable, w.routing))
			b.must(b.request(rollout.RouteRemoveCanary, w.routing))
			b.must(b.request(rollout.RouteUnpin, w.routing))
		})
	}
}

// TestNoEmptyService holds every change back whose Service would have no ready endpoint.
func TestNoEmptyService(t *testing.T) {
	w := ways["httproute"]
	short := func(b *bench, action rollout.RouteAction) rollout.RouteRequest {
		req := b.request(action, w.routing)
		req.Traffic, req.DeadlineSeconds = weight(20), 1
		return req
	}
	t.Run("canary", func(t *testing.T) {
		b := newBench(t)
		b.apply(serviceYAML)
		b.apply(routeYAML)
		b.pod("stable-1", stable, nil)
		b.pod("canary-1", canary, map[string]string{"dev.slipway.io/behaviour": "never-ready"})
		before := own(b.object("HTTPRoute", "order"))
		message, _ := b.fails(short(b, rollout.RouteEnsure), failure.WorkloadFailed)
		require.Contains(t, message, "order-canary has no ready pod")
		require.Equal(t, before, own(b.object("HTTPRoute", "order")), "nothing is routed to a Service that is empty")
	})
	t.Run("stable", func(t *testing.T) {
		b := newBench(t)
		b.apply(serviceYAML)
		b.pod("canary-1", canary, nil)
		message, _ := b.fails(short(b, rollout.RoutePin), failure.WorkloadFailed)
		require.Contains(t, message, "no pod with pod-template-hash="+stable+" is ready")
		require.NotContains(t, toJSON(t, b.object("Service", "order").Object["spec"]), stable, "the Service is not pinned to nothing")
	})
}

// TestWithoutCanaryServices leaves the Services alone, and puts the headers on what is asked for.
func TestWithoutCanaryServices(t *testing.T) {
	b, w := newBench(t), ways["httproute"]
	before := own(b.set(w))
	service := own(b.object("Service", "order"))
	req := b.request(rollout.RouteEnsure, w.routing)
	req.Traffic, req.NoCanary, req.CanaryHash = byHeader("x-user", "tester"), true, ""
	req.Traffic.RequestHeaderModifier = &strategy.HeaderModifier{Set: []strategy.Header{{Name: "x-tag", Value: "gray"}}}
	b.must(req)
	require.Contains(t, toJSON(t, b.object("HTTPRoute", "order").Object["spec"]), `"requestHeaderModifier":{"set":[{"name":"x-tag","value":"gray"}]}`)
	for _, action := range []rollout.RouteAction{rollout.RoutePin, rollout.RouteUnpin, rollout.RouteRemoveCanary, rollout.RouteToStable} {
		req.Action = action
		b.must(req)
	}
	require.Equal(t, before, own(b.object("HTTPRoute", "order")))
	require.Equal(t, service, own(b.object("Service", "order")))
	require.Nil(t, b.object("Service", "order-canary"))
}

// TestKilledAfterWrites kills the process after each write of a release, with the answer lost; the next one goes on, to the same end.
func TestKilledAfterWrites(t *testing.T) {
	t.Parallel()
	killAtWrites(t, true)
}

// TestSoakKilledBeforeWrites kills it before each write, which is after the one before it, but for what the process knew.
func TestSoakKilledBeforeWrites(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killAtWrites(t, false)
}

func killAtWrites(t *testing.T, after bool) {
	t.Helper()
	for name, w := range ways {
		for at := range 3 {
			t.Run(fmt.Sprintf("%s/%d/after=%t", name, at, after), func(t *testing.T) {
				b := newBench(t)
				before := own(b.set(w))
				service := own(b.object("Service", "order"))
				for _, actions := range [][]rollout.RouteAction{
					{rollout.RoutePin, rollout.RouteEnsure}, {rollout.RouteUnpin, rollout.RouteToStable, rollout.RouteRemoveCanary},
				} {
					b.killed(w, actions, at, after)
					b.use(b.config, traffic.Options{})
					for _, action := range actions {
						req := b.twenty(w)
						req.Action = action
						b.must(req)
					}
					if actions[0] == rollout.RoutePin {
						b.requireSplit(w, weight(20))
					}
				}
				require.Equal(t, before, own(b.object(w.kind, "order")))
				require.Equal(t, service, own(b.object("Service", "order")))
				require.Nil(t, b.object("Service", "order-canary"))
				require.Nil(t, b.object("Ingress", "order-canary"))
			})
		}
	}
}

// killed runs actions and kills them at one write: before it reaches the server, or after it has.
func (b *bench) killed(w way, actions []rollout.RouteAction, at int, after bool) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	b.use(b.config, traffic.Options{})
	b.wire.fault = func(_ *http.Request, before int) error {
		if before == at {
			cancel()
			if after {
				b.wire.lose = true
				return nil
			}
			return context.Canceled
		}
		return ctx.Err()
	}
	for _, action := range actions {
		req := b.twenty(w)
		req.Action = action
		if _, err := b.acts.Route(ctx, req); err != nil {
			return
		}
	}
}

// TestOutage is trouble of the system, which the workflow resumes, once the budget is used up; without a budget it is tried again for ever.
func TestOutage(t *testing.T) {
	b, w := newBench(t), ways["httproute"]
	b.set(w)
	b.use(b.config, traffic.Options{ListenFor: time.Second})
	b.wire.down = true
	req := b.request(rollout.RoutePin, w.routing)
	req.UnreachableBudgetSeconds = 1
	message, _ := b.fails(req, failure.Unreachable)
	require.Contains(t, message, "has been out of reach for more than 1 s")
	req.UnreachableBudgetSeconds = 0
	_, err := b.attempt(req)
	var app *temporal.ApplicationError
	require.True(t, asApp(err, &app))
	require.Equal(t, string(failure.NotReady), app.Type())
	require.False(t, app.NonRetryable())
}
