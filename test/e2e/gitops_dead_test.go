package e2e

import (
	"fmt"
	"math"
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

// deadEnds are the rows of docs/gitops.md, «While the engine is down», for an apply by the client (which leaves what the manifest doesn't say) and by the server
// (which resets a Service's whole selector). Each release rests at its second step: half of its pods, and half of its requests.
var deadEnds = map[string]struct{ client, server deadEnd }{
	"Deployment/canary/Nginx/OldImage":             {deadEnd{4, 2, 50, 0}, deadEnd{4, 2, 67, 0}},
	"Deployment/canary/Nginx/NewImage":             {deadEnd{0, 6, 0, 100}, deadEnd{0, 6, 100, 0}},
	"Deployment/blueGreen/Nginx/OldImage":          {deadEnd{4, 0, 0, 50}, deadEnd{4, 0, 0, 50}},
	"Deployment/blueGreen/Nginx/NewImage":          {deadEnd{0, 4, 0, 100}, deadEnd{0, 4, 100, 0}},
	"StatefulSet/partition/Gateway/OldImage":       {deadEnd{4, 0, 0, 0}, deadEnd{4, 0, 0, 0}},
	"StatefulSet/partition/Gateway/NewImage":       {deadEnd{2, 2, 0, 0}, deadEnd{2, 2, 50, 0}},
	"DaemonSet/partition/Nginx/OldImage":           {deadEnd{4, 0, 0, 50}, deadEnd{4, 0, 0, 50}},
	"DaemonSet/partition/Nginx/NewImage":           {deadEnd{0, 4, 0, 100}, deadEnd{0, 4, 100, 0}},
	"CloneSet/partition/Nginx/OldImage":            {deadEnd{4, 0, 0, 50}, deadEnd{4, 0, 0, 50}},
	"CloneSet/partition/Nginx/NewImage":            {deadEnd{0, 4, 0, 100}, deadEnd{0, 4, 100, 0}},
	"CloneSet/blueGreen/Gateway/OldImage":          {deadEnd{4, 4, 0, 0}, deadEnd{4, 4, 50, 0}},
	"CloneSet/blueGreen/Gateway/NewImage":          {deadEnd{4, 4, 0, 0}, deadEnd{4, 4, 50, 0}},
	"AdvancedStatefulSet/partition/Istio/OldImage": {deadEnd{4, 0, 0, 0}, deadEnd{4, 0, 0, 0}},
	"AdvancedStatefulSet/partition/Istio/NewImage": {deadEnd{0, 4, 0, 100}, deadEnd{0, 4, 100, 0}},
	"AdvancedDaemonSet/partition/Nginx/OldImage":   {deadEnd{4, 0, 0, 50}, deadEnd{4, 0, 0, 50}},
	"AdvancedDaemonSet/partition/Nginx/NewImage":   {deadEnd{0, 4, 0, 100}, deadEnd{0, 4, 100, 0}},
}

// What rests in another way than an in-place Deployment depends on the engine, or on the guard: with neither, this is where it ends. Whatever that is, when
// the engine comes back the release ends as asked, or waits for a person.
func TestSoakGitopsDeadEnds(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	o := harness.Options{}
	e := harness.Start(t, o)
	var rows []gitopsRow
	var all []*among
	for _, c := range gitopsCells[1:] {
		for _, tool := range []harness.Tool{harness.KubectlApply, harness.Flux} {
			for _, commit := range []commit{oldImage, newImage} {
				a := amongNeighbours(t, e, c, tool, nil)
				a.StartRollout(a.rollout)
				rows, all = append(rows, gitopsRow{c, tool, commit, false}), append(all, a)
			}
		}
	}
	for i, a := range all {
		a.approve(1)
		a.rest(2)
		if rows[i].commit == newImage {
			a.declare(a.rollout.NewestImage())
		}
	}
	e.Processes[0].Kill()
	for i, row := range rows {
		all[i].neighbour.Every(time.Second) // one at a time: each round is a process
		all[i].threeRounds(row.String())
		count := all[i].watch.Count(t)
		toNew, nowhere := all[i].watch.Requests(t)
		want := deadEnds[fmt.Sprintf("%s/%s", row.cell, row.commit)].server
		if row.tool.Title == harness.KubectlApply.Title {
			want = deadEnds[fmt.Sprintf("%s/%s", row.cell, row.commit)].client
		}
		t.Run(row.String(), func(t *testing.T) {
			require.Equal(t, want, deadEnd{count.StableReady, count.NewReady, math.Round(toNew), math.Round(nowhere)})
		})
	}
	e.Dev(o)
	e.WaitReady()
	for i, row := range rows {
		status := all[i].along()
		t.Logf("%s: %s, step %d: %s", row, status.Phase, status.CurrentStepIndex, status.Reason)
		for round := 0; !status.Phase.Final() && round < 3; round++ {
			require.Contains(t, status.Reason, row.tool.Manager, "it says for whom it waits")
			all[i].MustVerb(all[i].rollout.Name, "retry", `{"actor":"ann"}`)
			status = all[i].along()
		}
		require.Equal(t, rollout.PhaseHealthy, status.Phase, "%s: %s", row, status.Reason)
	}
	harness.Covered(t, len(rows), "releases without their engine that a neighbour wrote over")
}
