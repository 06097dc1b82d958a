package e2e

import (
	"testing"
	"time"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// Behind the guard, a GitOps tool that syncs the whole manifest every second, with the released image, does not disturb
// the release.
func TestLongGitOpsSyncs_DisturbNoRelease_BehindGuard(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	runGuardedRows(t, []gitopsRow{{gitopsCells[0], harness.Flux, mergedImage, false},
		{gitopsCells[2], harness.ArgoClientSide, mergedImage, false}})
}

// This test runs every row of TestSoakRelease_KeepsPromises_DuringGitOpsSyncs behind the guard.
func TestSoakGitOpsSyncs_DisturbNoRelease_BehindGuard(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	runGuardedRows(t, gitopsRows())
}

func runGuardedRows(t *testing.T, rows []gitopsRow) {
	t.Helper()
	e, guard := harness.StartGuarded(t)
	t.Run("rows", func(t *testing.T) {
		for _, row := range rows {
			t.Run(row.String(), func(t *testing.T) {
				t.Parallel()
				row.run(t, e.ForTest(t), guard)
			})
		}
	})
}

// With the guard and without the engine, a waiting release keeps its pods and its traffic split, for every kind and
// style. The manifest has the image that the workload's own template has at that moment: the guard does not cover the
// template, and another image moves pods of every kind except an in-place Deployment.
func TestLongGitOpsSyncs_MoveNoPods_BehindGuardWithoutEngine(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	syncBehindGuardWithoutEngine(t, gitopsCells[:1], harness.Flux, harness.ArgoServerSide)
}

// This test covers every kind and style with every tool.
func TestSoakGitOpsSyncs_MoveNoPods_BehindGuardWithoutEngine(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	syncBehindGuardWithoutEngine(t, gitopsCells, harness.Tools...)
}

func syncBehindGuardWithoutEngine(t *testing.T, cells []cell, tools ...harness.Tool) {
	t.Helper()
	e, guard := harness.StartGuarded(t)
	rows := map[string]*gitopsRelease{}
	for _, c := range cells {
		for _, tool := range tools {
			a := newGitopsRelease(t, e, c, tool, nil)
			guard.EnforceOn(t, a.Apps)
			a.StartRollout(a.rollout)
			a.waitPaused(1)
			if c.style != strategy.StyleCanary {
				a.commitImage(a.rollout.NewestImage())
			}
			rows[c.String()+"/"+tool.Title] = a
		}
	}
	e.Processes[0].Kill()
	for _, a := range rows {
		a.tool.SyncEvery(time.Second)
	}
	for row, a := range rows {
		a.waitThreeSyncs(row)
		a.watch.RequirePromises(t)
	}
}
