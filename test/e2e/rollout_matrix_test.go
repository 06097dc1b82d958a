package e2e

import (
	"cmp"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// matrixCell is a cell of the matrix. reason says why it is covered before `make test-soak`, "" if only there. Of the
// cells with a reason, early ones are covered by `make test`, the others by `make test-long`.
type matrixCell struct {
	cell
	reason string
	early  bool
}

// matrix returns every allowed cell: partition for all six kinds, an extra workload for a Deployment, blue-green for a
// Deployment and a CloneSet, each with every provider and without one.
func matrix() []matrixCell {
	early := map[cell]string{
		{harness.Deployment, strategy.StylePartition, harness.NoProvider}: "the most common release of all",
		{harness.DaemonSet, strategy.StylePartition, harness.NoProvider}:  "pods deleted by name",
		{harness.CloneSet, strategy.StylePartition,
			harness.Nginx}: "an unstructured kind; Ingress for the style partition",
		{harness.StatefulSet, strategy.StylePartition,
			harness.Gateway}: "partition from the top, pinned by another label; HTTPRoute for the style partition",
		{harness.Deployment, strategy.StyleCanary, harness.Nginx}:    "Ingress with an extra workload",
		{harness.Deployment, strategy.StyleBlueGreen, harness.Istio}: "custom objects for blue-green",
	}
	later := map[cell]string{
		{harness.AdvancedStatefulSet, strategy.StylePartition,
			harness.Istio}: "an unstructured kind with ordinals; custom objects for the style partition",
		{harness.AdvancedDaemonSet, strategy.StylePartition, harness.NoProvider}: "an unstructured kind without a size",
		{harness.Deployment, strategy.StyleCanary, harness.Gateway}:              "HTTPRoute with an extra workload",
		{harness.Deployment, strategy.StyleCanary,
			harness.Istio}: "custom objects with an extra workload",
		{harness.Deployment, strategy.StyleBlueGreen, harness.Nginx}: "Ingress for blue-green",
		{harness.CloneSet, strategy.StyleBlueGreen,
			harness.Gateway}: "HTTPRoute for blue-green, of an unstructured kind",
	}
	var cells []matrixCell
	for _, kind := range harness.Kinds {
		for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
			if !allowed(kind, style) {
				continue
			}
			for _, provider := range append([]harness.Provider{harness.NoProvider}, harness.Providers...) {
				c := cell{kind, style, provider}
				reason, isEarly := early[c]
				cells = append(cells, matrixCell{c, cmp.Or(reason, later[c]), isEarly})
			}
		}
	}
	return cells
}

func allowed(kind harness.Kind, style strategy.Style) bool {
	switch style {
	case strategy.StyleCanary:
		return kind == harness.Deployment
	case strategy.StyleBlueGreen:
		return kind == harness.Deployment || kind == harness.CloneSet
	default:
		return true
	}
}

// Cells of kind × style × provider go through all steps with approvals to the new version, checked by the observer.
func TestRolloutMatrix(t *testing.T) {
	t.Parallel()
	releaseCells(t, func(place matrixCell) bool { return place.early })
}

// Together with TestRolloutMatrix, this test covers each kind, each style and each provider for each style once.
func TestLongRolloutMatrix(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	releaseCells(t, func(place matrixCell) bool { return place.reason != "" && !place.early })
}

// This test covers the cells that the others omit.
func TestSoakRolloutMatrix(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	releaseCells(t, func(place matrixCell) bool { return place.reason == "" })
}

func releaseCells(t *testing.T, takes func(place matrixCell) bool) {
	t.Helper()
	e := harness.Shared(t)
	t.Run("cells", func(t *testing.T) {
		for _, place := range matrix() {
			if !takes(place) {
				continue
			}
			t.Run(place.String(), func(t *testing.T) {
				t.Parallel()
				releaseCell(t, e, place.cell)
			})
		}
	})
}

// releaseCell releases a cell with an approval of each step.
func releaseCell(t *testing.T, e *harness.Engine, c cell) {
	t.Helper()
	r := startRelease(t, e, c, nil)
	r.approveAll(1)
	status := r.requirePromoted()
	require.Equal(t, -1, status.NextStepIndex, "there is no next step at the end")
	require.Equal(t, rollout.StateCompleted, status.CurrentStepState)
	require.NotEmpty(t, status.StableRevision)
	require.NotEqual(t, status.StableRevision, status.CanaryRevision)
	if c.style == strategy.StylePartition {
		require.Equal(t, harness.SubjectSize, r.watch.PodsCreated(t),
			"every pod is replaced once, finalising restarts none")
	}
}

// A rollback from the waiting first step, for the most common release and for one with traffic.
func TestRolloutRollback(t *testing.T) {
	t.Parallel()
	rollBackCells(t, func(_, step int, place matrixCell) bool {
		return step == 1 && (place.cell == cell{harness.Deployment, strategy.StylePartition, harness.NoProvider} ||
			place.cell == cell{harness.Deployment, strategy.StyleCanary, harness.Nginx})
	})
}

// This test covers a tenth of the cells of both matrices, each at a different step than its neighbours.
func TestLongRolloutRollback(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	rollBackCells(t, func(i, step int, place matrixCell) bool { return place.reason != "" && (i+step)%10 == 0 })
}

// A rollback of every cell from every step that waits.
func TestSoakRolloutRollbackAtEveryStep(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	rollBackCells(t, func(int, int, matrixCell) bool { return true })
}

func rollBackCells(t *testing.T, takes func(i, step int, place matrixCell) bool) {
	t.Helper()
	e := harness.Shared(t)
	t.Run("cells", func(t *testing.T) {
		for i, place := range matrix() {
			for step := 1; step <= place.waitingSteps(); step++ {
				if !takes(i, step, place) {
					continue
				}
				t.Run(place.String()+"/"+string(rune('0'+step)), func(t *testing.T) {
					t.Parallel()
					rollBackCell(t, e, place.cell, step)
				})
			}
		}
	})
}

// waitingSteps returns how many of the three steps wait: the last one only of a blue-green.
func (c cell) waitingSteps() int {
	if c.style == strategy.StyleBlueGreen {
		return 3
	}
	return 2
}

// rollBackCell rolls a release of a cell back from a step.
func rollBackCell(t *testing.T, e *harness.Engine, c cell, step int) {
	t.Helper()
	r := startRelease(t, e, c, nil)
	for n := 1; n < step; n++ {
		r.approve(n)
	}
	r.waitPaused(step)
	r.sendVerb("rollback", `{"actor":"ann","reason":"it is too slow"}`)
	status := r.requireRolledBack()
	last := status.History[len(status.History)-1]
	require.Equal(t, rollout.VerbRollback, last.Verb)
	require.Equal(t, "ann", last.Actor)
	require.Equal(t, "http", last.Via)
}

// A cell that is not allowed is refused with the field. release/rollout has the whole table; these are one of each
// style and of each kind of client.
func TestRolloutMatrixRefusals(t *testing.T) {
	t.Parallel()
	refuseCells(t, []cell{{harness.StatefulSet, strategy.StyleCanary, harness.NoProvider},
		{harness.CloneSet, strategy.StyleCanary, harness.NoProvider},
		{harness.DaemonSet, strategy.StyleBlueGreen, harness.NoProvider}})
}

// This test covers each cell that is not allowed.
func TestSoakRolloutMatrixRefusals(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	var cells []cell
	for _, kind := range harness.Kinds {
		for _, style := range []strategy.Style{strategy.StyleCanary, strategy.StyleBlueGreen} {
			if !allowed(kind, style) {
				cells = append(cells, cell{kind, style, harness.NoProvider})
			}
		}
	}
	refuseCells(t, cells)
}

func refuseCells(t *testing.T, cells []cell) {
	t.Helper()
	e := harness.Shared(t)
	for _, c := range cells {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			r := prepare(t, e, c, nil)
			a := r.TryStartRollout(r.rollout)
			require.Contains(t, []int{http.StatusUnprocessableEntity, http.StatusBadRequest}, a.Status, "%s", a.Body)
			require.NotEmpty(t, a.Problem().Errors, "the field is named: %s", a.Body)
			r.watch.RequireFinalised(t, untouchedEnd)
			r.watch.RequireNoLeftovers(t)
		})
	}
}
