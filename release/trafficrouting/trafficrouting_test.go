package trafficrouting

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// example is the example of the source document, without its comments.
const example = `apiVersion: rollouts.kruise.io/v1alpha1
kind: TrafficRouting
metadata:
  name: mse-traffic
spec:
  objectRef:
  - service: spring-cloud-a
    ingress:
      classType: mse
      name: spring-cloud-a
    gracePeriodSeconds: 10
  strategy:
    matches:
    - headers:
      - type: Exact
        name: User-Agent
        value: Andriod
    requestHeaderModifier:
      set:
      - name: x-mse-tag
        value: gray
`

// byCustom is a spec alone.
const byCustom = `{"objectRef":[{"service":"a","customNetworkRefs":[{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","name":"a"}]}],"strategy":{"weight":20}}`

func TestExampleOfTheSourceDocument(t *testing.T) {
	t.Parallel()
	d, errs := Decode([]byte(example))
	require.NoError(t, errs.Err())
	require.Equal(t, "mse-traffic", d.Name)
	require.Empty(t, d.Warnings)
	require.Equal(t, rollout.SharedTraffic{
		Name: "mse-traffic",
		Routings: []strategy.Routing{{Service: "spring-cloud-a", GraceSeconds: 10,
			Ingress: &strategy.IngressRef{Class: "mse", Name: "spring-cloud-a"}}},
		Traffic: strategy.Traffic{
			Matches: []strategy.Match{{Headers: []strategy.ValueMatch{{Type: strategy.MatchExact,
				Name: "User-Agent", Value: "Andriod"}}}},
			RequestHeaderModifier: &strategy.HeaderModifier{Set: []strategy.Header{{Name: "x-mse-tag", Value: "gray"}}},
		},
	}, d.Shared)
	stored, errs := DecodeSpec("mse-traffic", d.Spec)
	require.NoError(t, errs.Err(), "the stored spec can be decoded")
	require.Equal(t, d.Shared, stored, "and is unchanged")
}

func TestSpecAlone(t *testing.T) {
	t.Parallel()
	d, errs := Decode([]byte(byCustom))
	require.NoError(t, errs.Err())
	require.EqualValues(t, 20, *d.Shared.Traffic.Weight)
	require.JSONEq(t, byCustom, string(d.Spec), "the spec is stored unchanged")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ reason, text, field, contains string }{
		"Kind": {"another kind", strings.Replace(example, "kind: TrafficRouting", "kind: Rollout", 1), "kind",
			"must be TrafficRouting"},
		"Version": {"another version", strings.Replace(example, "v1alpha1", "v1beta1", 1), "apiVersion",
			"must be rollouts.kruise.io/v1alpha1"},
		"NoSpec": {"the spec is missing", "apiVersion: rollouts.kruise.io/v1alpha1\nkind: TrafficRouting\n",
			"spec", "is required"},
		"NoObject": {"no Service is named", `{"strategy":{"matches":[{"path":{}}]}}`, "objectRef",
			"at least one Service"},
		"NoStrategy": {"no requests are selected", `{"objectRef":[{"service":"a","ingress":{"name":"a"}}]}`,
			"strategy", "is required"},
		"NothingSent": {"no request goes anywhere",
			strings.Replace(example, "    matches:\n    - headers:\n      - type: Exact\n        name: User-Agent\n  "+
				"      value: Andriod\n", "", 1), "spec.strategy", "sends no request anywhere"},
		"IngressWeight": {"one Service for both versions",
			`{"objectRef":[{"service":"a","ingress":{"name":"a"}}],"strategy":{"weight":20}}`, "strategy.weight",
			"cannot be done by an Ingress"},
		"RouteWeight": {"one Service for both versions",
			`{"objectRef":[{"service":"a","gateway":{"httpRouteName":"a"}}],"strategy":{"weight":20}}`,
			"strategy.weight", "cannot be done by an HTTPRoute"},
		"WeightRange": {"a share", strings.Replace(byCustom, "20", "101", 1), "strategy.weight",
			"must be a share from 1% to 100%"},
		"UnknownKey": {"an unknown key", strings.Replace(byCustom, `"weight"`, `"wieght"`, 1), "strategy.wieght",
			`did you mean "weight"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, errs := Decode([]byte(test.text))
			for _, one := range errs {
				if one.Field == test.field && strings.Contains(one.Reason, test.contains) {
					require.Positive(t, one.Line, test.reason)
					return
				}
			}
			require.Failf(t, "not refused", "%s: want %s: …%s…; got\n%v", test.reason, test.field, test.contains, errs)
		})
	}
}

func TestDecode_Warns_OfWeightWithMatches(t *testing.T) {
	t.Parallel()
	d, errs := Decode([]byte(strings.Replace(example, "  strategy:\n", "  strategy:\n    weight: 5\n", 1)))
	require.NoError(t, errs.Err())
	require.Nil(t, d.Shared.Traffic.Weight)
	require.Len(t, d.Warnings, 1)
	require.Contains(t, d.Warnings[0], "is ignored because there are matches")
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{example, byCustom, "spec: &a [*a]", "{", "\x00", "objectRef:\n- service: a\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		begin := time.Now()
		d, errs := Decode(data)
		require.Less(t, time.Since(begin), 10*time.Second)
		if len(errs) > 0 {
			for _, one := range errs {
				require.Positive(t, one.Line, "every error has its line: %v", one)
			}
			return
		}
		require.NotEmpty(t, d.Shared.Routings)
		again, errs := DecodeSpec(d.Name, d.Spec)
		require.NoError(t, errs.Err(), "the stored spec can be decoded")
		require.Equal(t, d.Shared, again, "and is unchanged")
	})
}
