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

// placed is a cell of the matrix, with the reason why it is gone through before `make test-soak`; "" leaves it to that. Those that are not early wait for
// `make test-long`.
type placed struct {
	cell
	reason string
	early  bool
}

// matrix is every cell that is allowed: partition for all six kinds, an extra workload for a Deployment, blue-green for a Deployment and a CloneSet,
// each with every provider and without one.
func matrix() []placed {
	early := map[cell]string{
		{harness.Deployment, strategy.StylePartition, harness.NoProvider}: "the most common release of all",
		{harness.DaemonSet, strategy.StylePartition, harness.NoProvider}:  "pods deleted by name",
		{harness.CloneSet, strategy.StylePartition, harness.Nginx}:        "an unstructured kind; Ingress for the style partition",
		{harness.StatefulSet, strategy.StylePartition, harness.Gateway}:   "partition from the top, pinned by another label; HTTPRoute for the style partition",
		{harness.Deployment, strategy.StyleCanary, harness.Nginx}:         "Ingress beside an extra workload",
		{harness.Deployment, strategy.StyleBlueGreen, harness.Istio}:      "custom objects for blue-green",
	}
	later := map[cell]string{
		{harness.AdvancedStatefulSet, strategy.StylePartition, harness.Istio}:    "an unstructured kind with ordinals; custom objects for the style partition",
		{harness.AdvancedDaemonSet, strategy.StylePartition, harness.NoProvider}: "an unstructured kind without a size",
		{harness.Deployment, strategy.StyleCanary, harness.Gateway}:              "HTTPRoute beside an extra workload",
		{harness.Deployment, strategy.StyleCanary, harness.Istio}:                "custom objects beside an extra workload",
		{harness.Deployment, strategy.StyleBlueGreen, harness.Nginx}:             "Ingress for blue-green",
		{harness.CloneSet, strategy.StyleBlueGreen, harness.Gateway}:             "HTTPRoute for blue-green, of an unstructured kind",
	}
	var cells []placed
	for _, kind := range harness.Kinds {
		for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
			if !allowed(kind, style) {
				continue
			}
			for _, provider := range append([]harness.Provider{harness.NoProvider}, harness.Providers...) {
				c := cell{kind, style, provider}
				reason, isEarly := early[c]
				cells = append(cells, placed{c, cmp.Or(reason, later[c]), isEarly})
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

// Cells of kind × style × provider: through all steps with approvals to the new version, under the observer's eyes.
func TestRolloutMatrix(t *testing.T) {
	t.Parallel()
	releaseCells(t, func(place placed) bool { return place.early })
}

// With those of TestRolloutMatrix one of each kind, each style and each provider for each style.
func TestLongRolloutMatrix(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	releaseCells(t, func(place placed) bool { return place.reason != "" && !place.early })
}

// Each cell that the others leave out.
func TestSoakRolloutMatrix(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	releaseCells(t, func(place placed) bool { return place.reason == "" })
}

func releaseCells(t *testing.T, takes func(place placed) bool) {
	t.Helper()
	e := harness.Shared(t)
	t.Run("cells", func(t *testing.T) {
		for _, place := range matrix() {
			if !takes(place) {
				continue
			}
			t.Run(place.String(), func(t *testing.T) {
				t.Parallel()
				r := begin(t, e, place.cell, nil)
				r.approveAll(1)
				status := r.endsNew()
				require.Equal(t, -1, status.NextStepIndex, "%s: there is no next step at the end", place.reason)
				require.Equal(t, rollout.StateCompleted, status.CurrentStepState)
				require.NotEmpty(t, status.StableRevision)
				require.NotEqual(t, status.StableRevision, status.CanaryRevision)
				if place.style == strategy.StylePartition {
					require.Equal(t, harness.SubjectSize, r.watch.Made(t), "every pod is replaced once, finalising restarts none")
				}
			})
		}
	})
}

// A rollback from the rest of the first step, of the most common release and of one with traffic.
func TestRolloutRollback(t *testing.T) {
	t.Parallel()
	rollBackCells(t, func(_, step int, place placed) bool {
		return step == 1 && (place.cell == cell{harness.Deployment, strategy.StylePartition, harness.NoProvider} ||
			place.cell == cell{harness.Deployment, strategy.StyleCanary, harness.Nginx})
	})
}

// A tenth of the cells of both matrices, each at another step than its neighbours.
func TestLongRolloutRollback(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	rollBackCells(t, func(i, step int, place placed) bool { return place.reason != "" && (i+step)%10 == 0 })
}

// A rollback of every cell from the rest of every step that has one.
func TestSoakRolloutRollbackAtEveryStep(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	rollBackCells(t, func(int, int, placed) bool { return true })
}

func rollBackCells(t *testing.T, takes func(i, step int, place placed) bool) {
	t.Helper()
	e := harness.Shared(t)
	t.Run("cells", func(t *testing.T) {
		for i, place := range matrix() {
			for step := 1; step <= 3; step++ {
				if step == 3 && place.style != strategy.StyleBlueGreen || !takes(i, step, place) {
					continue // a canary's last step passes by itself
				}
				t.Run(place.String()+"/"+string(rune('0'+step)), func(t *testing.T) {
					t.Parallel()
					r := begin(t, e, place.cell, nil)
					for n := 1; n < step; n++ {
						r.approve(n)
					}
					r.rest(step)
					r.verb("rollback", `{"actor":"ann","reason":"it is too slow"}`)
					status := r.endsStable()
					last := status.History[len(status.History)-1]
					require.Equal(t, rollout.VerbRollback, last.Verb)
					require.Equal(t, "ann", last.Actor)
					require.Equal(t, "http", last.Via)
				})
			}
		}
	})
}

// A cell that is not allowed is refused at the door, with the field. release/rollout has the table of all; these are one of each style and of each kind of client.
func TestRolloutMatrixRefusals(t *testing.T) {
	t.Parallel()
	refuseCells(t, []cell{{harness.StatefulSet, strategy.StyleCanary, harness.NoProvider}, {harness.CloneSet, strategy.StyleCanary, harness.NoProvider},
		{harness.DaemonSet, strategy.StyleBlueGreen, harness.NoProvider}})
}

// Each cell that is not allowed.
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
			r.watch.RequireHome(t, observerEndUntouched)
			r.watch.RequireNothingOfOurs(t)
		})
	}
}
