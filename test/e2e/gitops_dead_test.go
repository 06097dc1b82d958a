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

// engineDownOutcome is the state of a waiting release after a GitOps tool has synced the whole manifest several times,
// with the engine dead and no guard.
type engineDownOutcome struct {
	// stable and new count ready pods; pods of an extra workload are new.
	stable, new int32
	// toNew and unserved are percentages of requests: those that reach the new version, and those that find no ready
	// pod.
	toNew, unserved float64
}

// engineDownOutcomes are the rows of docs/gitops.md, «While the engine is down», for a client-side apply (which leaves
// undeclared fields alone) and a server-side apply (which resets a Service's whole selector). Each release waits at its
// second step, with half of the pods and half of the requests on the new version.
var engineDownOutcomes = map[string]struct{ client, server engineDownOutcome }{
	"Deployment/canary/Nginx/OldImage":             {engineDownOutcome{4, 2, 50, 0}, engineDownOutcome{4, 2, 67, 0}},
	"Deployment/canary/Nginx/NewImage":             {engineDownOutcome{0, 6, 0, 100}, engineDownOutcome{0, 6, 100, 0}},
	"Deployment/blueGreen/Nginx/OldImage":          {engineDownOutcome{4, 0, 0, 50}, engineDownOutcome{4, 0, 0, 50}},
	"Deployment/blueGreen/Nginx/NewImage":          {engineDownOutcome{0, 4, 0, 100}, engineDownOutcome{0, 4, 100, 0}},
	"StatefulSet/partition/Gateway/OldImage":       {engineDownOutcome{4, 0, 0, 0}, engineDownOutcome{4, 0, 0, 0}},
	"StatefulSet/partition/Gateway/NewImage":       {engineDownOutcome{2, 2, 0, 0}, engineDownOutcome{2, 2, 50, 0}},
	"DaemonSet/partition/Nginx/OldImage":           {engineDownOutcome{4, 0, 0, 50}, engineDownOutcome{4, 0, 0, 50}},
	"DaemonSet/partition/Nginx/NewImage":           {engineDownOutcome{0, 4, 0, 100}, engineDownOutcome{0, 4, 100, 0}},
	"CloneSet/partition/Nginx/OldImage":            {engineDownOutcome{4, 0, 0, 50}, engineDownOutcome{4, 0, 0, 50}},
	"CloneSet/partition/Nginx/NewImage":            {engineDownOutcome{0, 4, 0, 100}, engineDownOutcome{0, 4, 100, 0}},
	"CloneSet/blueGreen/Gateway/OldImage":          {engineDownOutcome{4, 4, 0, 0}, engineDownOutcome{4, 4, 50, 0}},
	"CloneSet/blueGreen/Gateway/NewImage":          {engineDownOutcome{4, 4, 0, 0}, engineDownOutcome{4, 4, 50, 0}},
	"AdvancedStatefulSet/partition/Istio/OldImage": {engineDownOutcome{4, 0, 0, 0}, engineDownOutcome{4, 0, 0, 0}},
	"AdvancedStatefulSet/partition/Istio/NewImage": {engineDownOutcome{0, 4, 0, 100}, engineDownOutcome{0, 4, 100, 0}},
	"AdvancedDaemonSet/partition/Nginx/OldImage":   {engineDownOutcome{4, 0, 0, 50}, engineDownOutcome{4, 0, 0, 50}},
	"AdvancedDaemonSet/partition/Nginx/NewImage":   {engineDownOutcome{0, 4, 0, 100}, engineDownOutcome{0, 4, 100, 0}},
}

// Apart from an in-place Deployment, a waiting release depends on the engine or on the guard. This test pins the
// outcome with neither. After the engine restarts, every release ends as requested or waits for a user.
func TestSoakRelease_EndsAsRequested_AfterGitOpsSyncsWithoutEngine(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	o := harness.Options{}
	e := harness.Start(t, o)
	var rows []gitopsRow
	var all []*gitopsRelease
	for _, c := range gitopsCells[1:] {
		for _, tool := range []harness.Tool{harness.KubectlApply, harness.Flux} {
			for _, commit := range []commit{oldImage, newImage} {
				a := newGitopsRelease(t, e, c, tool, nil)
				a.StartRollout(a.rollout)
				rows, all = append(rows, gitopsRow{c, tool, commit, false}), append(all, a)
			}
		}
	}
	for i, a := range all {
		a.approve(1)
		a.waitPaused(2)
		if rows[i].commit == newImage {
			a.commitImage(a.rollout.NewestImage())
		}
	}
	e.Processes[0].Kill()
	for i, row := range rows {
		all[i].tool.SyncEvery(time.Second) // one release at a time: each sync is a process
		all[i].waitThreeSyncs(row.String())
		count := all[i].watch.Count(t)
		toNew, nowhere := all[i].watch.TrafficShares(t)
		want := engineDownOutcomes[fmt.Sprintf("%s/%s", row.cell, row.commit)].server
		if row.tool.Title == harness.KubectlApply.Title {
			want = engineDownOutcomes[fmt.Sprintf("%s/%s", row.cell, row.commit)].client
		}
		t.Run(row.String(), func(t *testing.T) {
			require.Equal(t, want, engineDownOutcome{count.StableReady, count.NewReady, math.Round(toNew),
				math.Round(nowhere)})
		})
	}
	e.Dev(o)
	e.WaitReady()
	for i, row := range rows {
		status := all[i].approveUntilDone()
		t.Logf("%s: %s, step %d: %s", row, status.Phase, status.CurrentStepIndex, status.Reason)
		for round := 0; !status.Phase.Final() && round < 3; round++ {
			require.Contains(t, status.Reason, row.tool.Manager, "the reason names the tool")
			all[i].MustVerb(all[i].rollout.Name, "retry", `{"actor":"ann"}`)
			status = all[i].approveUntilDone()
		}
		require.Equal(t, rollout.PhaseHealthy, status.Phase, "%s: %s", row, status.Reason)
	}
	harness.Covered(t, len(rows), "releases without their engine that a GitOps tool synced")
}
