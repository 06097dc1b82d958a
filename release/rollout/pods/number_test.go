package pods

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// numberedWorkload is a claimed workload whose pods are all of the version that its release declares.
func numberedWorkload(size int32) Observed {
	const claim = "rollout/default/shop/web@run"
	seen := Observed{Template: "first", Declared: "first", Revisions: []Revision{{Name: "r1", Hash: "r1", Number: 1,
		Template: "first", HasCounts: true, Desired: size, Total: size, Ready: size}},
		Saved: &rollout.Saved{Claim: claim, Stable: "r1", StableTemplate: "first", Declared: "first"}}
	seen.Replicas, seen.Total, seen.Ready, seen.Updated, seen.Available, seen.UID = size, size, size, size, size, "uid"
	seen.Claim, seen.PodsSeen = claim, true
	for i := range size {
		seen.Pods = append(seen.Pods, workload.Pod{Name: fmt.Sprint("web-", i), UID: fmt.Sprint(i), Revision: "r1",
			Ready: true, RolloutID: "6", Batch: "1"})
	}
	return seen
}

// numberingMove is the Move of a step that only numbers pods.
func numberingMove(style strategy.Style, step int) rollout.MoveRequest {
	plan := []intstr.IntOrString{intstr.FromString("20%"), intstr.FromString("50%"), intstr.FromString("100%")}
	return rollout.MoveRequest{Subject: rollout.Subject{Claim: "rollout/default/shop/web@run", UID: "uid",
		DeadlineSeconds: 60}, Step: step, Style: style, Replicas: plan[step-1], Settle: true,
		Batch: &rollout.Batch{RolloutID: "7", Step: step, Plan: plan[:step], Only: true}}
}

// A release that replaces no pod gives each step's pods their number, and writes nothing else.
func TestMove_NumbersPodsOfStep_WhenNoPodIsReplaced(t *testing.T) {
	t.Parallel()
	for style, tech := range map[strategy.Style]Technique{strategy.StylePartition: deploymentPartition{},
		strategy.StyleCanary: deploymentExtra{declared: true}, strategy.StyleBlueGreen: deploymentBlueGreen{}} {
		seen := numberedWorkload(10)
		for step, batches := range [][]string{{"1", "1"}, {"2", "2", "2"}, {"3", "3", "3", "3", "3"}} {
			req := numberingMove(style, step+1)
			d := Move(tech, req, seen)
			require.Equal(t, ActNumber, d.Action, "%s: %s", style, d.Reason)
			require.True(t, d.Ends)
			require.Equal(t, batches, d.Number.Batches, style)
			require.Equal(t, int32(10), d.Numbers.Updated, "%s: every pod is of the version", style)
			require.Equal(t, "first", d.Numbers.Template, style)
			require.Equal(t, "r1", d.Numbers.Canary, style)
			for i, p := range d.Number.Pods {
				for j := range seen.Pods {
					if seen.Pods[j].Name == p.Name {
						seen.Pods[j].RolloutID, seen.Pods[j].Batch = "7", d.Number.Batches[i]
					}
				}
			}
			again := Move(tech, req, seen)
			require.Equal(t, workload.ActDone, again.Action, "%s: %s", style, again.Reason)
		}
	}
}

func TestNumberingMove_WaitsOrFails(t *testing.T) {
	t.Parallel()
	req := numberingMove(strategy.StylePartition, 2)
	seen := numberedWorkload(4)
	seen.Revisions[0].Ready, seen.Ready = 1, 1
	d := Move(deploymentPartition{}, req, seen)
	require.Equal(t, workload.ActWait, d.Action, "a step is done when as many pods are ready as it has")
	require.Contains(t, d.Reason, "1 of the 2 pods that get the rollout-id 7 are ready")

	seen = numberedWorkload(4)
	seen.Template = "second"
	d = Move(deploymentPartition{}, req, seen)
	require.Equal(t, failure.Drift, d.Failure.Kind, "another template is the next command")
	req.Halt = true
	require.Equal(t, workload.ActDone, Move(deploymentPartition{}, req, seen).Action, "there is nothing to settle")

	seen = numberedWorkload(4)
	seen.PodsSeen, seen.Pods = false, nil
	req.Halt = false
	require.Equal(t, workload.ActReadPods, Move(deploymentPartition{}, req, seen).Action)
}
