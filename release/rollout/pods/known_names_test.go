package pods

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// declaring is a workload of two pods whose new template is held, with these fields of its own.
func declaring(settings map[string]json.RawMessage) Observed {
	seen := Observed{Declared: "new", Template: "new",
		Revisions: []Revision{{Name: "r1", Hash: "r1", Template: "old", HasCounts: true, Desired: 2, Total: 2,
			Ready: 2}}}
	seen.Replicas, seen.Total, seen.Settings = 2, 2, settings
	return seen
}

// The limits that a blue-green borrows are annotated where other tools read them, in the write that claims the
// workload, and removed at the end.
func TestOriginalStrategyIsAnnotated_OfBlueGreen(t *testing.T) {
	t.Parallel()
	deployment := catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	cloneSet := catalog.WorkloadRef{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: "web"}
	for _, c := range []struct {
		reason   string
		ref      catalog.WorkloadRef
		style    strategy.Style
		settings map[string]json.RawMessage
		want     string
	}{
		{"a Deployment's own limits", deployment, strategy.StyleBlueGreen, map[string]json.RawMessage{
			pathStrategy: json.RawMessage(
				`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":"10%"}}`),
			pathMinReadySeconds: json.RawMessage("5"), pathProgressDeadline: json.RawMessage("60")},
			`{"maxSurge":1,"maxUnavailable":"10%","minReadySeconds":5,"progressDeadlineSeconds":60}`},
		{"one that recreates its pods has Kubernetes' defaults", deployment, strategy.StyleBlueGreen,
			map[string]json.RawMessage{pathStrategy: json.RawMessage(`{"type":"Recreate"}`)},
			`{"maxSurge":"25%","maxUnavailable":"25%","progressDeadlineSeconds":600}`},
		{"a CloneSet's own limits", cloneSet, strategy.StyleBlueGreen, map[string]json.RawMessage{
			pathUpdateStrategy: json.RawMessage(`{"type":"ReCreate","maxSurge":"50%","maxUnavailable":2}`)},
			`{"maxSurge":"50%","maxUnavailable":2}`},
		{"missing limits have its controller's defaults", cloneSet, strategy.StyleBlueGreen, nil,
			`{"maxSurge":"0%","maxUnavailable":"20%"}`},
		{"a partition has nothing of the kind", deployment, strategy.StylePartition, nil, ""},
	} {
		tech, _ := TechniqueOf(c.ref, c.style)
		seen := declaring(c.settings)
		if c.ref.Kind == "CloneSet" {
			seen.PodsSeen = true
		}
		d := Begin(tech, rollout.BeginRequest{Subject: rollout.Subject{Workload: catalog.Workload{WorkloadRef: c.ref},
			Name: "web", Claim: "rollout/default/shop/web@1"},
			Strategy: strategy.Strategy{Style: c.style}}, seen)
		require.Equal(t, workload.ActWrite, d.Action, "%s: %s", c.reason, d.Reason)
		noted := d.Write.Annotations[rollout.AnnotationOriginalStrategy]
		if c.want == "" {
			require.Empty(t, noted, c.reason)
		} else {
			require.JSONEq(t, c.want, noted, c.reason)
		}
		require.Contains(t, (&finish{seen: seen}).annotationsToRemove(), rollout.AnnotationOriginalStrategy,
			"it is removed at the end")
	}
}

// The surge of a blue-green has the step's own value if that gives the same number of pods.
func TestBlueGreenSurge_KeepsShareOfStep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason   string
		replicas intstr.IntOrString
		size     int32
		want     string
	}{
		{"a share stays a share: it follows the workload's size", intstr.FromString("50%"), 10, `"50%"`},
		{"all of them as well", intstr.FromString("100%"), 10, `"100%"`},
		{"a number is a number", intstr.FromInt32(3), 10, `3`},
		{"a share that keeps one pod stable comes to more than that", intstr.FromString("95%"), 10, `9`},
		{"a number beyond the size is the size", intstr.FromInt32(7), 5, `5`},
	} {
		target := strategy.Target(strategy.StyleBlueGreen, c.replicas, c.size)
		request := rollout.MoveRequest{Replicas: c.replicas}
		seen := Observed{Saved: &rollout.Saved{}}
		d := deploymentBlueGreen{}.next(task{Request: request, Size: c.size, Target: target}, seen)
		require.JSONEq(t, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":`+c.want+`,"maxUnavailable":0}}`,
			string(d.Write.Settings[0].Value), c.reason)
	}
}
