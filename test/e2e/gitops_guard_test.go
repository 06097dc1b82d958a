package e2e

import (
	"testing"
	"time"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// With the guard a neighbour that applies the whole manifest every second, with the image that is released, disturbs nothing.
func TestLongGitopsGuarded(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	guardedRows(t, []gitopsRow{{gitopsCells[0], harness.Flux, mergedImage, false}, {gitopsCells[2], harness.ArgoClientSide, mergedImage, false}})
}

// Every row of TestSoakGitops, with the guard.
func TestSoakGitopsGuarded(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	guardedRows(t, gitopsRows())
}

func guardedRows(t *testing.T, rows []gitopsRow) {
	t.Helper()
	e, guard := harness.StartGuarded(t)
	t.Run("rows", func(t *testing.T) {
		for _, row := range rows {
			t.Run(row.String(), func(t *testing.T) {
				t.Parallel()
				row.run(t, e.For(t), guard)
			})
		}
	})
}

// With the guard and without the engine: what rests stays exactly where it is, pods and traffic, whatever the kind and the style. The manifest has the image
// that the workload's own template has by then: a template is not guarded, and of every kind but a Deployment in place another image moves pods.
func TestLongGitopsGuardedWithoutTheEngine(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	guardedWithoutTheEngine(t, gitopsCells[:1], harness.Flux, harness.ArgoServerSide)
}

// Every kind and style with every tool.
func TestSoakGitopsGuardedWithoutTheEngine(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	guardedWithoutTheEngine(t, gitopsCells, harness.Tools...)
}

func guardedWithoutTheEngine(t *testing.T, cells []cell, tools ...harness.Tool) {
	t.Helper()
	e, guard := harness.StartGuarded(t)
	rows := map[string]*among{}
	for _, c := range cells {
		for _, tool := range tools {
			a := amongNeighbours(t, e, c, tool, nil)
			guard.Over(t, a.Apps)
			a.StartRollout(a.rollout)
			a.rest(1)
			if c.style != strategy.StyleCanary {
				a.declare(a.rollout.NewestImage())
			}
			rows[c.String()+"/"+tool.Title] = a
		}
	}
	e.Processes[0].Kill()
	for _, a := range rows {
		a.neighbour.Every(time.Second)
	}
	for row, a := range rows {
		a.threeRounds(row)
		a.watch.RequirePromises(t)
	}
}
