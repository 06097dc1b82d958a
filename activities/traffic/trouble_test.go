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

// begun pins the Service and routes 20 % of the requests to the canary.
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

// edits are edits by another client of what a release has borrowed or created.
var edits = map[string]struct{ kind, name, patch string }{
	"ingress": {"Ingress", "order-canary",
		`{metadata: {annotations: {nginx.ingress.kubernetes.io/canary-weight: "90"}}}`},
	"httproute": {"HTTPRoute", "order", `{spec: {rules: [{backendRefs: [{name: order, port: 80}]}]}}`},
	"custom":    {"VirtualService", "order", `{spec: {http: [{route: [{destination: {host: order}}]}]}}`},
}

// TestRouteEdit_IsNotOverwrittenWithoutConfirmation: another client edits a route during a release. The edit stays
// until the user confirms that it is overwritten, and the originals are still known then.
func TestRouteEdit_IsNotOverwrittenWithoutConfirmation(t *testing.T) {
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
			require.Contains(t, message, e.kind+" "+b.namespace+"/"+e.name+" has been edited by traffic.test since",
				"the API server's name of this process")
			require.Equal(t, edited, own(b.object(e.kind, e.name)), "the edit is not overwritten")
			if name != "ingress" { // an object that the release created may be deleted even if it was edited
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

// TestForgedRestoreAnnotation_IsRefused: a tenant replaces the patch that a release saved on their Service or route. No
// change of traffic applies it, and the original can be restored once the annotation is.
func TestForgedRestoreAnnotation_IsRefused(t *testing.T) {
	t.Parallel()
	forged := `[{"op":"add","path":"/metadata/finalizers","value":["theirs.example/hold"]},{"op":"remove","path":"/metadata/annotations/slipway.io~1held-by"}]`
	for name, w := range ways {
		for object, actions := range map[string][]rollout.RouteAction{
			"Service": {rollout.RoutePin, rollout.RouteUnpin}, w.kind: {rollout.RouteEnsure, rollout.RouteToStable},
		} {
			if object == "Ingress" {
				continue // it is not borrowed: the release creates a canary Ingress
			}
			t.Run(name+" "+object, func(t *testing.T) {
				b := newBench(t)
				b.set(w)
				before := own(b.object(object, "order"))
				b.begun(w)
				saved := b.object(object, "order").GetAnnotations()[rollout.AnnotationRestore]
				b.merge(object, "order", fmt.Sprintf(`{metadata: {annotations: {%s: %q}}}`, rollout.AnnotationRestore,
					forged))
				for _, action := range actions {
					req := b.request(action, w.routing)
					req.Traffic, req.Overwrite = weight(50), true // not even if the user allows overwriting
					message, _ := b.fails(req, failure.Drift)
					require.Contains(t, message, "its annotation slipway.io/restore has been changed by traffic.test "+
						"and is not followed (operation 1 changes /metadata/finalizers, "+
						"which no release borrows): restore its previous value", action)
				}
				require.Empty(t, b.object(object, "order").GetFinalizers())
				b.merge(object, "order", fmt.Sprintf(`{metadata: {annotations: {%s: %q}}}`, rollout.AnnotationRestore,
					saved))
				b.must(b.request(actions[1], w.routing))
				require.Equal(t, before, own(b.object(object, "order")))
			})
		}
	}
}

// TestServiceEdit_IsReportedAsDrift: another client changes the pinned Service's selector.
func TestServiceEdit_IsReportedAsDrift(t *testing.T) {
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

// TestUnrelatedEdits_AreKept: edits outside of the borrowed part stay, also after the release.
func TestUnrelatedEdits_AreKept(t *testing.T) {
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

// TestClaimOfOtherRelease_IsRespected: what another release holds is not changed, and the error names that release.
func TestClaimOfOtherRelease_IsRespected(t *testing.T) {
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

// TestDeletedObjects: another client deletes what a release created or borrowed. The release creates its own objects
// again. The deletion of a borrowed object is for the user to decide, and there is nothing to restore.
func TestDeletedObjects(t *testing.T) {
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
			require.Contains(t, message, "was deleted by another client")
			b.must(b.request(rollout.RouteToStable, w.routing))
			b.must(b.request(rollout.RouteRemoveCanary, w.routing))
			b.must(b.request(rollout.RouteUnpin, w.routing))
		})
	}
}

// TestTraffic_IsNotRoutedToEmptyService: a change waits while its Service would have no ready endpoint.
func TestTraffic_IsNotRoutedToEmptyService(t *testing.T) {
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
		require.Equal(t, before, own(b.object("HTTPRoute", "order")), "nothing is routed to an empty Service")
	})
	t.Run("stable", func(t *testing.T) {
		b := newBench(t)
		b.apply(serviceYAML)
		b.pod("canary-1", canary, nil)
		message, _ := b.fails(short(b, rollout.RoutePin), failure.WorkloadFailed)
		require.Contains(t, message, "no pod with pod-template-hash="+stable+" is ready")
		require.NotContains(t, toJSON(t, b.object("Service", "order").Object["spec"]), stable,
			"the Service is not pinned to missing pods")
	})
}

// TestRoute_WithoutCanaryService does not change the Services, and adds the headers to the matching requests.
func TestRoute_WithoutCanaryService(t *testing.T) {
	b, w := newBench(t), ways["httproute"]
	before := own(b.set(w))
	service := own(b.object("Service", "order"))
	req := b.request(rollout.RouteEnsure, w.routing)
	req.Traffic, req.NoCanary, req.CanaryHash = byHeader("x-user", "tester"), true, ""
	req.Traffic.RequestHeaderModifier = &strategy.HeaderModifier{Set: []strategy.Header{{Name: "x-tag", Value: "gray"}}}
	b.must(req)
	require.Contains(t, toJSON(t, b.object("HTTPRoute", "order").Object["spec"]),
		`"requestHeaderModifier":{"set":[{"name":"x-tag","value":"gray"}]}`)
	for _, action := range []rollout.RouteAction{rollout.RoutePin, rollout.RouteUnpin, rollout.RouteRemoveCanary,
		rollout.RouteToStable} {
		req.Action = action
		b.must(req)
	}
	require.Equal(t, before, own(b.object("HTTPRoute", "order")))
	require.Equal(t, service, own(b.object("Service", "order")))
	require.Nil(t, b.object("Service", "order-canary"))
}

// TestRoute_ContinuesAfterKill_AfterWrites kills the process after each write, before the response arrives; the next
// process continues and reaches the same result.
func TestRoute_ContinuesAfterKill_AfterWrites(t *testing.T) {
	t.Parallel()
	killAtWrites(t, true)
}

// TestSoakRoute_ContinuesAfterKill_BeforeWrites kills the process before each write.
func TestSoakRoute_ContinuesAfterKill_BeforeWrites(t *testing.T) {
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
					{rollout.RoutePin, rollout.RouteEnsure},
					{rollout.RouteUnpin, rollout.RouteToStable, rollout.RouteRemoveCanary},
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

// killed runs actions until the process is killed at one write: before it reaches the server, or after.
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

// TestRoute_WhenClusterUnreachable: once the budget is used up, an unreachable cluster is reported as such, and the
// workflow resumes the step. Without a budget it is retried forever.
func TestRoute_WhenClusterUnreachable(t *testing.T) {
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
