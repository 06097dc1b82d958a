package workload_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	authv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/observer"
)

// A change is checked against the version to which the workload will be rolled back, before that happens: if the
// earlier release were finalised for a change that cannot be made, both would be lost.
func TestPreflightRollout_WhileEarlierReleaseExists(t *testing.T) {
	images := func(image string) strategy.Change { return strategy.Change{Images: map[string]string{"app": image}} }
	cases := []struct {
		reason string
		change strategy.Change
		style  strategy.Style
		field  string
		says   string
	}{
		{reason: "a newer version can be made", change: images("x:newer")},
		{reason: "the version in progress can be made as well: the workload is rolled back first",
			change: images("x:new")},
		{reason: "an unknown container", change: strategy.Change{Images: map[string]string{"sidecar": "x:new"}},
			field: "images", says: "no container sidecar; it has app"},
		{reason: "a patch that the cluster does not accept",
			change: strategy.Change{TemplatePatch: json.RawMessage(`{"spec":{"restartPolicy":"Never"}}`)},
			field:  "templatePatch", says: "does not accept the new version"},
		{reason: "the version to which it is rolled back", change: images("x:good"), field: "images",
			says: "the change changes nothing"},
		{reason: "an empty change", change: strategy.Change{}, says: "nothing is to be changed"},
		{reason: "the extra workload of the earlier release does not matter", change: images("x:newer"),
			style: strategy.StyleCanary},
	}
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		t.Run(string(style), func(t *testing.T) {
			b := newBench(t)
			b.deployment("web", 4, own("1", "1"))
			b.settled(web(), 4)
			r := b.release("web", style, "x:new")
			r.begin()
			r.move(1, "50%")
			check := func(state string, held string) {
				for _, c := range cases {
					other := b.release("web", strategy.StylePartition, "")
					if c.style != "" {
						other.style = c.style
					}
					other.run, other.change = "run-2", c.change
					writes := b.realWrites()
					got := other.preflight()
					require.Equal(t, held, got.Holder, "%s, %s", state, c.reason)
					require.Equal(t, held == "", got.Frozen, "%s, %s", state, c.reason)
					require.Equal(t, writes, b.realWrites(), "%s, %s: it writes nothing", state, c.reason)
					if c.says == "" {
						require.Empty(t, got.Refusals, "%s, %s", state, c.reason)
						continue
					}
					require.Len(t, got.Refusals, 1, "%s, %s", state, c.reason)
					require.Equal(t, c.field, got.Refusals[0].Field, "%s, %s", state, c.reason)
					require.Contains(t, got.Refusals[0].Reason, c.says, "%s, %s", state, c.reason)
				}
			}
			check("a release in progress", r.subject().Claim)
			r.finish(rollout.FinishFreeze, rollout.SideStable)
			check("a frozen split", "")
		})
	}
	t.Run("another Deployment has the extra workload's name", func(t *testing.T) {
		b := newBench(t)
		b.deployment("web", 2, nil)
		b.deployment("web-canary", 1, nil)
		b.settled(web(), 2)
		b.release("web", strategy.StylePartition, "x:new").begin()
		got := b.release("web", strategy.StyleCanary, "x:newer").preflight()
		require.Len(t, got.Refusals, 1)
		require.Contains(t, got.Refusals[0].Reason, "web-canary exists already")
	})
	t.Run("it was scaled to zero", func(t *testing.T) {
		b := newBench(t)
		b.deployment("web", 2, nil)
		b.settled(web(), 2)
		b.release("web", strategy.StylePartition, "x:new").begin()
		b.merge(web(), `{"spec":{"replicas":0}}`)
		got := b.release("web", strategy.StylePartition, "x:newer").preflight()
		require.Len(t, got.Refusals, 1)
		require.Contains(t, got.Refusals[0].Reason, "has no pods")
	})
	t.Run("steps that its controller cannot make", func(t *testing.T) {
		d := newDock(t, releasables[3])
		d.release().begin()
		other := d.release()
		other.run = "run-2"
		strategy := strategy.Strategy{Style: strategy.StyleBlueGreen,
			Steps: []strategy.Step{{Replicas: intstr.FromString("50%")}, {Replicas: intstr.FromString("100%")}}}
		got := other.preflights(rollout.PreflightRequest{Subject: other.subject(), Strategy: strategy,
			Change: images("x:newer")})[0]
		require.Len(t, got.Refusals, 1)
		require.Equal(t, "strategy.blueGreen.steps[1].replicas", got.Refusals[0].Field)
	})
}

// Each rollout of a joint check gets the result of a check alone, and one that the cluster does not answer does not
// affect the others.
func TestPreflightRollouts_OfSeveralTogether(t *testing.T) {
	b := newBench(t)
	ask := func(name string) rollout.PreflightRequest {
		return b.release(name, strategy.StylePartition, "x:new").preflightRequest()
	}
	b.deployment("web", 2, nil)
	b.deployment("shop", 3, nil)
	b.settled(web(), 2)
	b.settled(observer.Name{Kind: "Deployment", Name: "shop"}, 3)
	elsewhere := ask("web")
	elsewhere.Strategy.Steps = nil
	all := []rollout.PreflightRequest{ask("web"), ask("none"), ask("shop"), elsewhere}
	var want []rollout.PreflightResult
	caller := b.release("web", strategy.StylePartition, "x:new")
	for _, req := range all {
		want = append(want, caller.preflights(req)...)
	}
	require.Empty(t, want[0].Refusals)
	require.Len(t, want[1].Refusals, 1)

	var namespaces atomic.Int32
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/namespaces/"+b.namespace) {
			namespaces.Add(1)
		}
		return nil, nil
	})
	require.Equal(t, want, caller.preflights(all...))
	require.Equal(t, int32(1), namespaces.Load(), "they are of one namespace")

	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/deployments/web") {
			return nil, errDown
		}
		return nil, nil
	})
	got := caller.preflights(all...)
	require.Contains(t, got[0].Unchecked, "this party's cluster is out of reach: ")
	require.Equal(t, want[1:3], got[1:3], "the others have their results")
	require.Equal(t, got[0].Unchecked, got[3].Unchecked, "it is the same workload")
	require.Equal(t, got[:1], caller.preflights(all[0]), "a single one has a result, too")
}

// A check that fails has a result that says why, and another rollout keeps its own. Only an attempt that ends early, for
// example because its worker stops, fails: another worker repeats it.
func TestPreflightRollouts_WithoutCluster(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectrulesreviews",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			all := []string{"*"}
			return true, &authv1.SelfSubjectRulesReview{Status: authv1.SubjectRulesReviewStatus{
				ResourceRules: []authv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}}}}, nil
		})
	objects := dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
	objects.PrependReactor("get", "deployments", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.(clienttesting.GetAction).GetName() == "broken" {
			panic("a client that breaks")
		}
		return true, nil, context.DeadlineExceeded
	})
	acts := workload.New(client, objects, workload.Options{Namespaces: []string{"shop"}})
	defer acts.Stop()
	var in rollout.PreflightRequests
	for _, at := range [][2]string{{"shop", "slow"}, {"shop", "broken"}, {"elsewhere", "web"}} {
		in.Rollouts = append(in.Rollouts, rollout.PreflightRequest{Subject: rollout.Subject{
			Workload: catalog.Workload{Namespace: at[0],
				WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: at[1]}}},
			Strategy: strategy.Strategy{Style: strategy.StylePartition}})
	}
	results, err := acts.PreflightRollouts(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []rollout.PreflightResult{
		{Unchecked: "this party's cluster is out of reach: context deadline exceeded"},
		{Unchecked: "panic: a client that breaks"},
		{Refusals: []rollout.Refusal{{Field: "namespace",
			Reason: "this party's worker does not serve the namespace elsewhere"}}},
	}, results)

	for i, kind := range []failure.Kind{failure.Unreachable, failure.Unreachable, ""} {
		_, err := acts.PreflightRollouts(t.Context(), rollout.PreflightRequests{Rollouts: in.Rollouts[i : i+1], Retry: true})
		if kind == "" {
			require.NoError(t, err, "a refusal is a result")
			continue
		}
		var retried *temporal.ApplicationError
		require.ErrorAs(t, err, &retried, "Temporal repeats the check")
		require.False(t, retried.NonRetryable())
		require.Equal(t, string(kind), retried.Type(), "if that does not help, the release is interrupted")
		require.Equal(t, results[i].Unchecked, retried.Message())
	}

	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = acts.PreflightRollouts(stopped, in)
	require.ErrorIs(t, err, context.Canceled)
}
