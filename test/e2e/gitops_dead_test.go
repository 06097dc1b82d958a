package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/test/harness"
)

// deadEnd is how a release that rests in the middle looks when a neighbour has applied the whole manifest for a while, with the engine dead and no guard:
// of which version its pods are, and where its requests go.
type deadEnd struct {
	// stable and new are the ready pods, those of an extra workload among the new ones.
	stable, new int32
	// toNew and nowhere are the shares of requests that arrive at the new version, and that meet nobody, in percent.
	toNew, nowhere float64
}

// deadEnds are the rows of docs/gitops.md, «While the engine is down». Each release rests at its second step: half of its pods, and half of its requests.
var deadEnds = map[string]deadEnd{}

// What rests in another way than an in-place Deployment depends on the engine, or on the guard: with neither, this is where it ends. Whatever that is, when
// the engine comes back the release ends as asked, or waits for a person.
func TestSoakGitopsDeadEnds(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	o := harness.Options{}
	e := harness.Start(t, o)
	rows := map[string]*among{}
	for _, c := range gitopsCells[1:] {
		for _, tool := range []harness.Tool{harness.KubectlApply, harness.Flux} {
			for _, commit := range []commit{oldImage, newImage} {
				row := gitopsRow{c, tool, commit, false}
				a := amongNeighbours(t, e, c, tool, nil)
				a.StartRollout(a.rollout)
				a.approve(1)
				a.rest(2)
				rows[row.String()] = a
				if commit == newImage {
					a.declare(a.rollout.NewestImage())
				}
			}
		}
	}
	e.Processes[0].Kill()
	for _, a := range rows {
		a.neighbour.Every(time.Second)
	}
	for row, a := range rows {
		a.threeRounds(row)
		count := a.watch.Count(t)
		toNew, nowhere := a.watch.Requests(t)
		end := deadEnd{count.StableReady, count.NewReady, toNew, nowhere}
		t.Logf("%s: %+v", row, end)
		t.Run(row, func(t *testing.T) { require.Equal(t, deadEnds[row], end) })
	}
	e.Dev(o)
	e.WaitReady()
	for row, a := range rows {
		status := a.along()
		t.Logf("%s: %s, step %d: %s", row, status.Phase, status.CurrentStepIndex, status.Reason)
		for round := 0; !status.Phase.Final() && round < 3; round++ {
			a.MustVerb(a.rollout.Name, "retry", `{"actor":"ann"}`)
			status = a.along()
		}
		require.Equal(t, rollout.PhaseHealthy, status.Phase, fmt.Sprintf("%s: %s", row, status.Reason))
	}
}
